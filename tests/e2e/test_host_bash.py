"""The bash host, driven directly: every behaviour that code may rely on, each in a session of its own.

A behaviour is a list of steps (code, test of the result[, timeout]); ("RO", ...) runs in a read-only copy. It holds when every
step does and the session is alive with its state afterwards.
"""
import os

import pytest

import hostlib
from hostlib import COPY, SESSION, STATELESS, Host, Surface

BASH = os.environ.get("FURCA_TEST_BASH", "/bin/bash")
BUILTIN = os.path.join(hostlib.libexec(), "furca-bash.so")
START = 'enable -f "$1" furca_host capability furca-fn furca-reset && furca_host'

pytestmark = pytest.mark.skipif(not os.path.exists(BASH), reason="needs " + BASH)


ARGV = [BASH, "--norc", "--noprofile", "-p", "-c", START, "bash", BUILTIN]


@pytest.fixture(scope="module")
def zygote():
    surface = Surface()
    host = surface.spawn(ARGV, capabilities={
        "contacts.lookup": lambda *a, **k: {"args": list(a), "kwargs": k},
        "echo": lambda value=None: value,
        "fail": lambda text: (_ for _ in ()).throw(KeyError(text)),
        "slow": lambda i: (__import__("time").sleep(0.3), i)[1],
        "fn twice": lambda text: text * 2,
    })
    yield host
    host.kill()
    surface.end()


@pytest.fixture
def session(zygote):
    host = zygote.clone(SESSION)
    yield host
    host.kill()


def out(expected, status=0):
    return lambda r: r.out == expected and r.status == status


def has(expected, status=None):
    return lambda r: expected in r.out + r.err and (status is None or r.status == status)


def st(expected):
    return lambda r: r.status == expected


def ended(how, status=None):
    return lambda r: r.how == how and (status is None or r.status == status)


def both(expected_out, expected_err, status=0):
    return lambda r: r.out == expected_out and r.err == expected_err and r.status == status


def lives(r):
    return r.how != "lost"


def quick(seconds, lacks=b"no"):
    return lambda r: r.seconds < seconds and lacks not in r.out and r.how == "interrupted"


X = ("x=keep", st(0))
K = ('echo "$x"', out(b"keep\n"))

BEHAVIOURS = [
    # state that persists
    ('cwd', [X, ('cd /usr/bin', st(0)), ('pwd; echo $OLDPWD', has(b'/usr/bin\n')), K]),
    ('variables, exported or not', [
        X,
        ('a=1; export b=2; declare -i n=5; readonly r=9', st(0)),
        ("echo $a; sh -c 'echo $b'; n+=1; echo $n", out(b'1\n2\n6\n')),
        ('r=1', lambda r: r.status == 1 and r.how != 'lost'),
        K,
    ]),
    ('arrays', [
        X,
        ('arr=(a "b c"); declare -A m=([k]=v)', st(0)),
        ('echo ${#arr[@]} "${arr[1]}" ${m[k]}', out(b'2 b c v\n')),
        K,
    ]),
    ('functions', [X, ('f() { local y=$1; echo "f:$y"; return 7; }', st(0)), ('f hi', out(b'f:hi\n', 7)), K]),
    ('aliases (expand_aliases on)', [
        X,
        ("shopt -s expand_aliases; alias g='echo aliased'", st(0)),
        ('g now', out(b'aliased now\n')),
        K,
    ]),
    ('alias defined and used on one line', [
        X,
        ("shopt -s expand_aliases\nalias g1='echo aliased'; g1 2>/dev/null; echo rc=$?", has(b'rc=127')),
        K,
    ]),
    ('alias defined on one line, used on the next, one call', [
        X,
        ("shopt -s expand_aliases\nalias g2='echo aliased'\ng2", has(b'aliased\n', 0)),
        K,
    ]),
    ('set and shopt options', [
        X,
        ('set -o pipefail; set -f; shopt -s extglob nullglob', st(0)),
        ('false | true; echo $?; echo *; shopt -q extglob && echo eg', out(b'1\n*\neg\n')),
        K,
    ]),
    ('traps', [X, ("trap 'echo usr1' USR1", st(0)), ('kill -USR1 $$; :', has(b'usr1')), K]),
    ('directory stack', [
        X,
        ('cd /; pushd /usr >/dev/null; pushd /etc >/dev/null', st(0)),
        ('dirs', out(b'/etc /usr /\n')),
        ('popd >/dev/null; pwd', out(b'/usr\n')),
        K,
    ]),
    ('positional parameters', [
        X,
        ('set -- one "two three"', st(0)),
        ('echo $# "$2"; shift; echo $1', out(b'2 two three\ntwo three\n')),
        K,
    ]),
    ('umask', [X, ('umask 027', st(0)), ('umask', out(b'0027\n')), K]),
    ('ulimit', [X, ('ulimit -n 300', st(0)), ('ulimit -n', out(b'300\n')), K]),
    ('$? and PIPESTATUS from the previous call', [
        X,
        ('false', st(1)),
        ('echo $?', out(b'1\n')),
        ('true | (exit 3)', st(3)),
        ('echo "${PIPESTATUS[@]}"', out(b'0 3\n')),
        K,
    ]),
    ('$_ from the previous call', [X, ('echo a b', out(b'a b\n')), ('echo $_', out(b'b\n')), K]),
    ('background job, jobs, kill %1, wait', [
        X,
        ('sleep 20 & echo started', has(b'started')),
        ('jobs', has(b'Running')),
        ('kill %1; wait; echo done', has(b'done')),
        K,
    ]),
    ('wait gives the job its status', [X, ('(sleep 0.2; exit 5) & p=$!', lives), ('wait $p; echo rc=$?', has(b'rc=5')), K]),
    # shape of the code
    ('multi-line code', [X, ('for i in 1 2; do\n  if [ $i = 2 ]; then\n    echo two\n  fi\ndone', out(b'two\n')), K]),
    ('heredoc', [X, ("cat <<EOF\nv=$x\nEOF\ncat <<'EOF'\n$x\nEOF", out(b'v=keep\n$x\n')), K]),
    ('heredoc without its end', [X, ('cat <<EOF\nabc', has(b'abc')), K]),
    ('syntax error', [
        X,
        ('echo before\nif then', lambda r: b'before' in r.out and b'syntax error' in r.out + r.err and r.status == 2),
        K,
    ]),
    ('unterminated quote', [X, ('echo "abc', lambda r: b'unexpected EOF' in r.out + r.err and r.status == 2), K]),
    ('unterminated compound', [X, ('while true; do', lambda r: b'syntax error' in r.out + r.err and r.status == 2), K]),
    ('comment last, no newline', [X, ('echo a # b', out(b'a\n')), K]),
    ('backslash last (as bash -c does)', [X, ('echo a \\', out(b'a \\\n')), K]),
    ('code of 1 MB', [X, ('y=' + 'z' * 1000000 + '\necho ${#y}', out(b'1000000\n')), K]),
    ('code of 100000 lines', [X, (': x\n' * 100000 + 'echo end', has(b'end\n', 0), 60), K]),
    # leaving
    ('exit 3', [X, ('exit 3', st(3)), K]),
    ('exit in a function in a redirected group', [
        X,
        ('f() { local x=inner; { exit 4; } >/dev/null; }; { f; } 2>/dev/null', st(4)),
        K,
    ]),
    ('exit in a loop, then a loop', [
        X,
        ('for i in 1 2; do exit 5; done', st(5)),
        ('for i in 1 2; do echo $i; break; done', out(b'1\n')),
        K,
    ]),
    ('exec prog', [X, ('exec echo hi', has(b'hi')), K]),
    ('exec of what is not there', [X, ('exec /nonexistent/prog; echo still', lives), K]),
    ('set -e fails', [X, ('set -e; false; echo no', lambda r: r.status == 1 and b'no' not in r.out), ('set +e', lives), K]),
    ('set -e fails in a redirected function', [
        X,
        ('set -e; f() { false; }; { f; } >/dev/null', st(1)),
        ('set +e; echo visible', out(b'visible\n')),
        K,
    ]),
    ('set -u', [
        X,
        ('set -u; echo $nosuch; echo no', lambda r: r.status in (1, 127) and b'unbound' in r.out + r.err and b'no\n' not in r.out),
        ('set +u', lives),
        K,
    ]),
    ('${v?message}', [
        X,
        ('echo ${nosuch?message}; echo no', lambda r: r.status in (1, 127) and b'message' in r.out + r.err),
        K,
    ]),
    ('set -n', [X, ('set -n\necho no', lives), K]),
    ('kill $$', [X, ('kill $$; echo no', st(143)), K]),
    ('kill -HUP $$', [X, ('kill -HUP $$; echo no', st(129)), K]),
    ('kill -STOP $$, suspend -f', [X, ('kill -STOP $$; suspend -f; echo resumed', has(b'resumed')), K]),
    ('SIGPIPE in the shell itself', [
        X,
        ('exec 5> >(true); sleep 0.2; echo x >&5; echo y >&5', lives),
        ('exec 5>&-', lives),
        K,
    ]),
    ('endless recursion', [X, ('f() { f; }; f', lambda r: b'nesting' in r.out + r.err, 20), K]),
    ('return after endless recursion (plain bash aborts)', [
        X,
        ('f() { f; }; { f; } >/dev/null', lives, 20),
        ('return 3; echo $?', lives),
        ('echo $?', has(b'\n', 0)),
        K,
    ]),
    ('out of memory', [
        X,
        ('ulimit -v 300000; y=$(head -c 400000000 /dev/zero | tr "\\0" x)', lambda r: b'cannot allocate' in r.out + r.err, 20),
        K,
    ]),
    ('return at top level', [X, ('return 3; echo $?', lives), K]),
    ('break at top level', [X, ('break; echo ok', has(b'ok')), K]),
    # input and output
    ('out and err apart, exact bytes', [X, ("printf 'o\\0\\377\\n'; printf e >&2; (exit 9)", both(b'o\0\xff\n', b'e', 9)), K]),
    ('stdin is at its end', [X, ('read a; echo "rc=$?"; cat; echo end', out(b'rc=1\nend\n')), ('head -c 5', out(b'')), K]),
    ('the child cannot read the requests', [
        X,
        ('cat; sort; python3 -c "import sys; print(len(sys.stdin.read()))"', out(b'0\n')),
        K,
    ]),
    ('10 MB of output', [X, ('head -c 10000000 /dev/zero', lambda r: r.out == bytes(10000000) and r.status == 0, 20), K]),
    ('marker-like output', [X, ('printf "@@END1:0:\\n0\\0"; echo after', has(b'after')), K]),
    ('no newline at the end', [X, ('printf abc', out(b'abc')), K]),
    ('background job holds the pipe', [
        X,
        ('sleep 3 & echo now', lambda r: r.out.startswith(b'now') or (b'now' in r.out and r.seconds < 2)),
        K,
        ('kill $!', lives),
    ]),
    ('background output does not join the next call', [
        X,
        ('(sleep 0.3; echo LATE) &', lives),
        ('sleep 0.6; echo mine', out(b'mine\n')),
        K,
    ]),
    ('exec >file persists', [
        X,
        ('exec >/tmp/bh.$$; echo in', lambda r: b'in' not in r.out),
        ('echo more', lambda r: b'more' not in r.out),
        ('cat /tmp/bh.$$ >&2; rm /tmp/bh.$$', lambda r: b'in\nmore\n' in r.out + r.err),
    ]),
    ('exec 3>&1, then >&3 in a later call', [
        X,
        ('exec 3>&1', st(0)),
        ('echo three >&3', out(b'three\n')),
        ('exec 1>/dev/null; exec 1>&3', lives),
        ('echo back', out(b'back\n')),
        K,
    ]),
    ('exec 3>/dev/stdout, {fd}>&2', [
        X,
        ('exec 3>/dev/stdout {fd}>&2', st(0)),
        ('echo three >&3; echo two >&$fd', both(b'three\n', b'two\n')),
        ('echo three >&3; echo two >&$fd', both(b'three\n', b'two\n')),
        K,
    ]),
    ('exec 2>&1 persists', [X, ('exec 2>&1', st(0)), ('echo e >&2', out(b'e\n')), K]),
    ('exec 1>&- (stdout closed), then opened again', [
        X,
        ('exec 3>&1 1>&-', lives),
        ('echo hi; echo rc=$? >&2', has(b'rc=1')),
        ('exec 0<&- 1>&3', lives),
        K,
    ]),
    # redefinitions
    ('function called eval', [X, ('eval() { echo fake; }', lives), K]),
    ('function called echo, exit, read, printf', [
        X,
        ('exit() { :; }; read() { :; }; printf() { :; }; cd() { :; }', lives),
        ('exit 3; builtin echo z', out(b'z\n')),
        K,
    ]),
    ('function called builtin, command, unset, set', [
        X,
        ('builtin() { :; }; command() { :; }; unset() { :; }; set() { :; }', lives),
        K,
    ]),
    ('alias eval, while, done, {', [
        X,
        ("shopt -s expand_aliases; alias eval=false while=false done=false '{'=false case=false", lives),
        K,
    ]),
    ('enable -n eval read printf', [X, ('enable -n eval read printf builtin', lives), K]),
    ('enable -d of the loop', [X, ('enable -d furca_host; enable -d capability; true', lives), K]),
    ('DEBUG trap', [
        X,
        ("trap 'd=$((d+1))' DEBUG", st(0)),
        ('d=0\n:\n:', lives),
        ('trap - DEBUG; echo $d', lambda r: r.out in (b'3\n', b'4\n')),
        K,
    ]),
    ('DEBUG trap that prints sees only the code', [
        X,
        ("trap 'echo D:$BASH_COMMAND' DEBUG", lives),
        ('true', out(b'D:true\n')),
        ('trap - DEBUG', lives),
        K,
    ]),
    ('ERR trap', [X, ("trap 'echo ERR' ERR", st(0)), ('false', out(b'ERR\n', 1)), ('trap - ERR', lives), K]),
    ('EXIT trap waits for the session', [
        X,
        ("trap 'echo bye' EXIT; echo set", out(b'set\n')),
        ('true', out(b'')),
        ('exit 2', lambda r: r.status == 2),
        K,
    ]),
    ('PROMPT_COMMAND is not run', [X, ("PROMPT_COMMAND='echo PROMPT'", lives), ('true', out(b'')), K]),
    ('PS1 changed', [X, ("PS1='> ' PS2='. '", lives), K]),
    ('set -x shows only the code', [
        X,
        ('set -x', lives),
        ('true', lambda r: (r.out + r.err) == b'+ true\n'),
        ('set +x', lives),
        K,
    ]),
    ('set -v', [X, ('set -v', lives), ('true', lives), ('set +v', lives), K]),
    ('IFS, LC_ALL, PATH spoiled', [X, ("IFS=01; LC_ALL=xx 2>/dev/null; PATH=", lives), K]),
    ('readonly names the loop uses', [X, ('readonly __c __st __q __a REPLY', lives), K]),
    ('control fds closed', [X, ('for i in $(seq 3 255); do eval "exec $i>&-"; done 2>/dev/null', lives), K]),
    ('ulimit -n 12', [X, ('ulimit -n 12', lives), K]),
    ('ulimit -n 3', [X, ('ulimit -n 3 2>/dev/null', lives), K]),
    ('cd to a deleted directory', [
        X,
        ('mkdir /tmp/gone.$$; cd /tmp/gone.$$; rmdir /tmp/gone.$$', lives),
        ('pwd >/dev/null; echo here', has(b'here')),
        ('cd /', lives),
        K,
    ]),
    # jobs, processes
    ('subshell', [X, ('(x=2; cd /; exit 6)', st(6)), K]),
    ('coproc across calls', [
        X,
        ('coproc cat', lives),
        ('echo hi >&${COPROC[1]}; read -t 2 -u ${COPROC[0]} l; echo $l', has(b'hi\n')),
        ('kill $COPROC_PID', lives),
        K,
    ]),
    ('process substitution', [X, ('cat <(echo a) <(echo b); echo c > >(cat); wait', has(b'a\nb\n')), K]),
    ('source', [
        X,
        ('echo "sv=5; echo src; return 3" >/tmp/src.$$; . /tmp/src.$$', has(b'src', 3)),
        ('echo $sv; rm /tmp/src.$$', out(b'5\n')),
        K,
    ]),
    ('set -m, fg', [X, ('set -m; sleep 0.1 & fg >/dev/null; echo rc=$?', has(b'rc=0')), ('set +m', lives), K]),
    ('time, pipeline, !', [X, ('TIMEFORMAT=%R; ! false | true; echo $?', has(b'1')), K]),
    # interrupts
    ('timeout: external command', [X, ('sleep 10; echo no', lambda r: r.seconds < 2 and b'no' not in r.out, 0.3), K]),
    ('timeout: loop of builtins', [X, ('while :; do :; done', lambda r: r.seconds < 2, 0.3), K]),
    ('timeout: pipeline, comsub, subshell', [
        X,
        ('y=$(sleep 9 | cat; (sleep 9)); echo no', lambda r: r.seconds < 2 and b'no' not in r.out, 0.3),
        K,
    ]),
    ('timeout: read from a fifo', [
        X,
        ('mkfifo /tmp/ff.$$; read y </tmp/ff.$$; echo no', lambda r: r.seconds < 2 and b'no' not in r.out, 0.3),
        ('rm -f /tmp/ff.*', lives),
        K,
    ]),
    ('timeout: SIGINT ignored', [
        X,
        ("trap '' INT; sleep 10; echo no", lambda r: r.seconds < 4 and b'no' not in r.out and r.how != 'lost', 0.3),
        ('trap - INT', lives),
        K,
    ]),
    ('timeout: waits, SIGINT trapped', [
        X,
        ("trap 'echo int' INT; sleep 20 &", lives),
        ('wait; wait; wait; wait; wait; echo no', lambda r: r.seconds < 4 and b'no' not in r.out and r.how != 'lost', 0.3),
        ('trap - INT; jobs', has(b'Running')),
        ('kill %1', lives),
        K,
    ]),
    ('timeout: child catches SIGINT', [
        X,
        ('python3 -c "\nimport time\nfor i in range(9):\n  try: time.sleep(5)\n  except KeyboardInterrupt: pass\n"; echo no', lambda r: r.seconds < 4 and r.how != 'lost', 0.5),
        K,
    ]),
    ('timeout: EXIT trap set', [
        X,
        ("trap 'echo bye' EXIT; sleep 10", lambda r: r.seconds < 2, 0.3),
        ('trap - EXIT', lives),
        K,
    ]),
    ('timeout: background job survives', [
        X,
        ('sleep 30 & sleep 10', lambda r: r.seconds < 2, 0.3),
        ('jobs', has(b'Running')),
        ('kill %1', lives),
        K,
    ]),
    ('timeout: stdout redirected', [
        X,
        ('{ sleep 10; } >/dev/null', lambda r: r.seconds < 2, 0.3),
        ('echo vis', out(b'vis\n')),
        K,
    ]),
    ('timeout: set -m', [X, ('set -m', lives), ('sleep 10', lambda r: r.seconds < 2, 0.3), ('set +m', lives), K]),
    ('the interrupt does not leak into the next call', [
        X,
        ('sleep 10', lives, 0.2),
        ('sleep 0.2; echo fine', out(b'fine\n')),
        K,
    ]),
]

READ_ONLY = [
    ('ro: sees everything', [
        X,
        ('a=(1 2); f() { echo f; }; shopt -s extglob expand_aliases; alias g="echo g"; set -- p', lives),
        ('RO', 'echo $x ${a[1]} $1; f; shopt -q extglob && echo eg', out(b'keep 2 p\nf\neg\n')),
        K,
    ]),
    ('ro: aliases', [X, ('shopt -s expand_aliases; alias g="echo g"', lives), ('RO', 'g 1', out(b'g 1\n')), K]),
    ('ro: changes nothing', [
        X,
        ('RO', 'x=2; y=3; cd /usr; umask 0; ulimit -n 99; set -f; f() { :; }; trap : USR1; exit 7', st(7)),
        ('echo $x.$y.$(type -t f).$-', has(b'keep...')),
        K,
    ]),
    ('ro: exit, syntax error, set -e', [
        X,
        ('RO', 'exit 3', st(3)),
        ('RO', 'if', st(2)),
        ('RO', 'set -e; false; echo no', out(b'', 1)),
        K,
    ]),
    ('ro: kill $$, kill 0, kill -9 $$', [
        X,
        ('RO', 'kill $$; echo no', lives),
        ('RO', 'kill 0', lives),
        ('RO', 'kill -9 $$', ended('lost')),
        K,
    ]),
    ("ro: kill of the session's job", [
        X,
        ('sleep 20 &', lives),
        ('RO', 'kill %1; kill $!; true', lives),
        ('jobs', has(b'Running')),
        ('kill %1', lives),
        K,
    ]),
    ("ro: wait for the session's jobs", [
        X,
        ('sleep 20 & (exit 5) & p=$!; sleep 0.1', lives),
        ('RO', 'wait $p; echo $?; wait %1; echo $?; wait; echo $?; wait -n; echo $?; wait -n; echo $?',
         lambda r: r.out == b'5\n127\n0\n127\n127\n' and b'wait: a job of the session is no child of the copy' in r.err),
        ('RO', 'sleep 0.1 & wait $!; echo $?; (exit 3) & wait %3; echo $?', out(b'0\n3\n')),
        ('RO', "trap 'echo u' USR1; (sleep 0.1; kill -USR1 $$) & wait $!; echo $?", out(b'u\n138\n')),
        ('jobs; wait $p; echo $?; kill %1', lambda r: b'Running' in r.out and b'\n5\n' in r.out),
        K,
    ]),
    ('ro: jobs listed', [X, ('sleep 20 &', lives), ('RO', 'jobs', has(b'Running')), ('kill %1', lives), K]),
    ("ro: session's EXIT trap stays quiet", [
        X,
        ("trap 'echo bye' EXIT", lives),
        ('RO', 'exit 0', out(b'')),
        ('RO', 'trap -p EXIT', has(b'echo bye')),
        K,
    ]),
    ('ro: its own EXIT trap runs', [X, ('RO', "trap 'echo mine' EXIT; echo a", out(b'a\nmine\n')), K]),
    ('ro: traps of the session still work', [
        X,
        ("trap 'echo u1' USR1", lives),
        ('RO', 'kill -USR1 $BASHPID; :', has(b'u1')),
        K,
    ]),
    ('ro: BASH_SUBSHELL is 0', [X, ('RO', 'echo $BASH_SUBSHELL', out(b'0\n')), K]),
    ('ro: file offset not shared', [
        X,
        ('seq 5 >/tmp/sq.$$; exec 7</tmp/sq.$$; read -u 7 a', lives),
        ('RO', 'read -u 7 a; echo $a', out(b'2\n')),
        ('read -u 7 a; echo $a; rm /tmp/sq.$$', out(b'2\n')),
        K,
    ]),
    ('ro: its background jobs are gone', [X, ('RO', '(sleep 5; echo > bg.left) & echo', lives), K]),
    ('ro: timeout', [X, ('RO', 'sleep 10', lambda r: r.seconds < 2, 0.3), K]),
    ('ro: RANDOM continues as in the session', [
        X,
        ('RANDOM=42; a=$RANDOM', lives),
        ('RO', 'b=$RANDOM; RANDOM=42; c=$RANDOM; c=$RANDOM; [ $b = $c ]; echo $?', out(b'0\n')),
        K,
    ]),
    ('ro: exec prog', [X, ('RO', 'exec echo hi', has(b'hi')), K]),
    ('ro: history and $!', [
        X,
        ('set -o history; history -c; history -s one; :', lives),
        ('RO', 'history | grep -c "  on[e]$"', out(b'1\n')),
        K,
    ]),
]


# What code may do to its session, with the seconds it has: afterwards REPAIR makes the session usable, and it can be read.
HARM = [
    ("set -m; sleep 30 | sleep 30", 0.3), ("set -m; (trap '' INT; sleep 30)", 0.3), ("set -m; sleep 30 & fg", 0.3),
    ("trap '' INT; while :; do :; done", 0.3), ("coproc A { cat; }; read -u ${A[0]} x", 0.3), ("a=({1..100000}); echo ${#a[@]}", 10),
    ("readonly BASHPID RANDOM SECONDS PIPESTATUS BASH_COMMAND LINENO OLDPWD PWD; cd /", 3), ("trap 'exit 3' DEBUG; :", 3),
    ("trap 'kill $$' DEBUG; :", 3), ("trap 'while :; do :; done' DEBUG; :", 0.3), ("trap 'sleep 30' DEBUG; :", 0.3),
    ("shopt -s extdebug; trap false DEBUG; :", 3), ("for i in {3..1100}; do eval \"exec $i>&1\"; done 2>/dev/null; echo x >&77", 9),
    ("ulimit -n 64; for i in {3..70}; do eval \"exec $i</dev/null\"; done 2>/dev/null", 5), ("exec 0>&- 1>&- 2>&-", 3),
    ("for i in {1..100}; do sleep 30 & done; wait", 0.5), ("trap '' 58; sleep 30", 0.3), ("trap 'echo u' 58; while :; do :; done", 0.3),
    ("trap '' 58; kill -58 $$; while :; do :; done", 0.3), ("ulimit -u 1; (true); true | true", 3), ("ulimit -f 0; echo x >y", 3),
    ("set -r", 3), ("(kill -STOP $BASHPID)", 0.3), ("kill -TSTP 0; kill -STOP 0; echo on", 3), ("enable -n -a", 3),
    ("shopt -s lastpipe; sleep 30 | read x", 0.3), ("BASH_XTRACEFD=1; set -x; unset BASH_XTRACEFD; set +x", 3),
    ("while read -r x; do :; done < <(yes)", 0.3),
]
REPAIR = ("furca-reset", "\\builtin trap - DEBUG ERR RETURN EXIT INT 58", "\\builtin set +euxvnm +o posix", "\\builtin enable furca-reset echo",
          "\\builtin furca-reset")


@pytest.mark.parametrize("code, seconds", HARM, ids=[code for code, _ in HARM])
def test_harm(session, tmp_path, code, seconds):
    session.run("cd '%s'; keep=keep" % tmp_path)
    result = session.run(code, timeout=seconds)
    assert result.how != "lost" and result.seconds < seconds + 3, result
    for line in REPAIR:
        assert session.run(line, timeout=2).how != "lost", line
    assert session.run("builtin echo $keep").out == b"keep\n"
    copy = session.copy()
    assert copy.run("builtin echo $keep").out == b"keep\n"
    copy.kill()


def steps_hold(session, steps, cwd):
    session.run("cd '%s'" % cwd)
    for step in steps:
        if step[0] == "RO":
            copy = session.copy()
            try:
                result = copy.run(step[1], timeout=step[3] if len(step) > 3 else 10)
            finally:
                copy.kill()
            code, test = step[1], step[2]
        else:
            code, test = step[0], step[1]
            result = session.run(code, timeout=step[2] if len(step) > 2 else 10)
        assert test(result), "%s -> %r" % (code[:200], result)
        assert session.alive(), "the session is lost: %s -> %r" % (code[:200], result)


@pytest.mark.parametrize("name, steps", BEHAVIOURS, ids=[name for name, _ in BEHAVIOURS])
def test_behaviour(session, tmp_path, name, steps):
    steps_hold(session, steps, tmp_path)


@pytest.mark.parametrize("name, steps", READ_ONLY, ids=[name for name, _ in READ_ONLY])
def test_read_only(session, tmp_path, name, steps):
    steps_hold(session, steps, tmp_path)


# -- capabilities


CAPABILITY = [
    ("words, key=text, key:=json", "capability contacts.lookup Ada limit:=3 note=text",
     b'{"args": ["Ada"], "kwargs": {"limit": 3, "note": "text"}}\n'),
    ("text as it is", "capability echo 'a\n\"b\"'", b'a\n"b"\n'),
    ("null", "capability echo", b"null\n"),
    ("a positional value", "capability echo ':=[1, {\"a\": null}, 2.5, true]'", b'[1, {"a": null}, 2.5, true]\n'),
    ("words behind --", "capability contacts.lookup -- a=1 b:=2", b'{"args": ["a=1", "b:=2"], "kwargs": {}}\n'),
    ("a word that is no key=text", "capability contacts.lookup http://h/?q=1", b'{"args": ["http://h/?q=1"], "kwargs": {}}\n'),
    ("64 bits", "capability echo :=18446744073709551615; capability echo :=-9223372036854775808",
     b"18446744073709551615\n-9223372036854775808\n"),
    ("escapes", "capability echo ':=[\"\\u00e9\\ud83d\\ude00\\n\"]'", '["\u00e9\U0001f600\\n"]\n'.encode()),
    ("-v", "capability -v v contacts.lookup 1; echo \"got $v\"", b'got {"args": ["1"], "kwargs": {}}\n'),
    ("in a subshell, a pipeline, a substitution", "(capability echo a); capability echo b | cat; echo $(capability echo c)",
     b"a\nb\nc\n"),
    ("a comma as decimal point", "{ LC_ALL=de_DE.UTF-8; } 2>/dev/null; capability echo :=1.5; LC_ALL=C", b"1.5\n"),
    ("a stored function", "furca-fn twice ab", b"abab\n"),
    ("deep", "v=$(printf '%0100d' 0); capability echo \":=${v//0/[}${v//0/]}\"", b"[" * 100 + b"]" * 100 + b"\n"),
]


@pytest.mark.parametrize("code, expected", [c[1:] for c in CAPABILITY], ids=[c[0] for c in CAPABILITY])
@pytest.mark.parametrize("role", [SESSION, STATELESS, COPY])
def test_capability(session, zygote, role, code, expected):
    host = zygote.clone(role) if role != COPY else session.copy()
    result = host.run(code)
    host.kill()
    assert (result.out, result.err, result.how) == (expected, b"", "ok")


def test_capability_fails(session):
    result = session.run("capability fail 'no such thing'; echo rc=$?")
    assert result.out == b"rc=1\n" and b"fail: KeyError: 'no such thing'" in result.err
    result = session.run("capability nosuch; echo rc=$?; capability; echo rc=$?; capability echo ':={'; echo rc=$?")
    assert result.out == b"rc=1\nrc=2\nrc=1\n"


def test_capability_many_at_once(session):
    code = "for i in 1 2 3 4 5 6 7 8; do capability slow $i >r$i & done; wait; cat r?; rm r?"
    result = session.run(code)
    assert result.out == b"".join(b"%d\n" % i for i in range(1, 9)) and result.seconds < 2


def test_capability_interrupted(session):
    session.capabilities["never"] = lambda: __import__("time").sleep(3)
    result = session.run("capability never; echo no", timeout=0.3)
    assert result.how == "interrupted" and result.out == b"" and result.seconds < 1
    assert session.run("capability echo next").out == b"next\n"


def test_capability_large(session):
    result = session.run("v=$(printf '%1000000s' x); capability -v w echo \"$v\"; [ \"$v\" = \"$w\" ]; echo $?")
    assert result.out == b"0\n"


# -- clones


def test_stateless_runs_its_exit_trap(zygote):
    host = zygote.clone(STATELESS)
    result = host.run("trap 'echo bye' EXIT; echo hi; exit 3")
    host.kill()
    assert result.out == b"hi\nbye\n" and result.how == "exit" and result.status == 3


def test_exit_trap_runs_at_close(session, tmp_path):
    session.run("trap 'echo bye >%s/bye' EXIT" % tmp_path)
    assert session.run("exit 0").out == b""
    assert not (tmp_path / "bye").exists()
    session.end()
    assert (tmp_path / "bye").read_text() == "bye\n"


def test_snapshot_takes_over(session, tmp_path):
    session.run("x=1; f() { echo f$x; }; trap 'echo bye >%s/bye' EXIT; cd /usr" % tmp_path)
    snapshot = session.clone(hostlib.SNAPSHOT)
    session.run("x=2")
    assert session.run("kill -9 $$").how == "lost"
    session.kill()
    snapshot.promote()
    assert snapshot.run("f; pwd; [ $$ = $BASHPID ]; echo $?; trap -p EXIT | head -c 7").out == b"f1\n/usr\n0\ntrap --"
    assert snapshot.run("kill $$").how == "signal"
    snapshot.end()
    snapshot.kill()
    assert (tmp_path / "bye").exists()


def test_branch(session):
    session.run("x=1; declare -A m=([k]=v)")
    branch = session.clone(hostlib.BRANCH)
    branch.run("x=2")
    assert session.run("echo $x").out == b"1\n"
    assert branch.run("echo $x ${m[k]}; [ $$ = $BASHPID ]; echo $?").out == b"2 v\n0\n"
    branch.kill()


def test_sessions_are_apart(zygote):
    a, b = zygote.clone(SESSION), zygote.clone(SESSION)
    a.run("x=a; cd /; umask 0")
    assert b.run("echo ${x-none}; umask").out == b"none\n0022\n"
    assert a.run("echo $RANDOM").out != b.run("echo $RANDOM").out
    a.kill()
    b.kill()


# -- what a call brings


def test_cwd_and_env(session, tmp_path):
    assert session.run("pwd; echo $E", cwd=str(tmp_path), env={"E": "it's"}).out == ("%s\nit's\n" % tmp_path).encode()
    assert session.run("pwd; sh -c 'echo $E'").out == ("%s\nit's\n" % tmp_path).encode()
    assert session.run("echo ${E-unset}; echo $OLDPWD", env={"E": None}).out.startswith(b"unset\n")
    result = session.run("echo no", cwd="/nonexistent")
    assert result.how == "refused" and result.out == b"" and not result.body["changed"]
    assert result.body["error"] == "cannot change to the directory '/nonexistent': No such file or directory"
    assert "Not a directory" in session.run("echo no", cwd="/etc/passwd").body["error"]
    assert session.run("echo no", env={"a b": "1"}).how == "refused"
    session.run("readonly RO=1")
    assert session.run("echo no", cwd="/usr", env={"SET": "1", "RO": "2"}).how == "refused"
    assert session.run("pwd; echo ${SET-unset}").out == ("%s\nunset\n" % tmp_path).encode()
    assert session.run("cd() { :; }; :", cwd="/usr").how == "ok"
    assert session.run("pwd", cwd="/etc").out == b"/etc\n"


def test_function(session):
    function = {"name": "greet", "source": 'local n=$#\necho "$1 $2 $n $lang"\nreturn 3', "args": ["it's", [1, "a"]], "kwargs": {"lang": "en"}}
    result = session.run("", function=function)
    assert result.out == b"it's [1, \"a\"] 2 en\n" and result.status == 3 and result.how == "ok"
    assert session.run("echo ${lang-unset}").out == b"unset\n"
    assert session.run("", function=dict(function, name="a;b")).how == "refused"


def test_nul_in_code(session):
    assert session.run("echo a\0b").how == "refused"
    assert session.run("echo ok").out == b"ok\n"


def test_foreign_environment_stays_out(tmp_path):
    (tmp_path / "env").write_text("echo FOREIGN\n")
    foreign = {"BASH_ENV": str(tmp_path / "env"), "ENV": str(tmp_path / "env"), "SHELLOPTS": "xtrace:errexit",
               "BASH_FUNC_ls%%": "() { echo FOREIGN; }"}
    host = Host.start(ARGV, env=dict(os.environ, **foreign))
    result = host.run("ls /dev/null; echo $-; bash -c 'echo $BASH_ENV; type -t ls'; env | grep -c BASH_FUNC")
    host.kill()
    assert result.out == b"/dev/null\nhB\n\nfile\n0\n" and result.err == b""


@pytest.mark.parametrize("code", ["exec >/dev/null 2>&1 </dev/zero", "exec 1>&- 2>&- 0<&-", "exec 2>&1", ":"])
@pytest.mark.parametrize("calls", [0, 1])
def test_reset(session, code, calls):
    if calls:
        session.run(code)
        code = ":"
    result = session.run(code + "; furca-reset; echo out; echo err >&2; read x; echo $?")
    assert (result.out, result.err) == (b"out\n1\n", b"err\n")
    assert session.run("echo out; exec 5>&1; furca-reset; echo more >&5").out == b"out\nmore\n"


# -- inspect


def test_inspect(session):
    session.run("cd /usr; pushd /tmp >/dev/null; a=(1 'b c'); declare -A m=([k]=v); declare -ri n=5; export e=$'\\xff'; declare -n r=n; declare u")
    session.run("f() { echo hi; }; alias ll='ls -l'; trap 'echo u' USR1; trap '' HUP; trap 'echo bye' EXIT; set -f; shopt -s nullglob; sleep 30 | cat &")
    copy = session.copy()
    state = copy.inspect("names")
    assert state["cwd"] == "/tmp"
    v = state["variables"]
    assert v["a"] == {"value": '([0]="1" [1]="b c")', "attributes": "a"}
    assert v["m"]["attributes"] == "A" and v["n"] == {"value": "5", "attributes": "ir"}
    assert v["e"] == {"value": "\ufffd", "attributes": "x"} and v["u"]["value"] is None and v["r"]["attributes"] == "n"
    assert "echo hi" in state["functions"]["f"] and state["aliases"] == {"ll": "ls -l"}
    assert "noglob" in state["options"]["set"] and "nullglob" in state["options"]["shopt"]
    assert state["traps"] == {"SIGUSR1": "echo u", "SIGHUP": "", "EXIT": "echo bye"}
    assert state["directories"] == ["/tmp", "/usr"]
    (job,) = state["jobs"]
    assert job["id"] == 1 and job["state"] == "running" and job["command"] == "sleep 30 | cat" and job["pid"] > 0
    assert set(state["options"]["changed"]) == {"noglob", "nullglob"}
    own = [name for name in v if name not in state["given"]]
    assert list(v)[:len(own)] == own == ["a", "e", "m", "n", "r", "u"] and {"HOME", "RANDOM", "PWD", "PATH"} <= set(state["given"])
    assert list(copy.inspect("full", "a")["variables"]) == ["a"] and copy.inspect("full", "a")["given"] == []
    assert copy.inspect("full", "PATH")["given"] == ["PATH"]
    assert copy.inspect("summary")["jobs"] == 1
    copy.kill()
    session.run("kill %1")
