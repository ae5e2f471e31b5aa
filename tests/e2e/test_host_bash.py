"""The bash host, driven directly: every behaviour that code may rely on, each in a session of its own.

A behaviour is a list of steps (code, test of the result[, timeout]); ("RO", ...) runs in a read-only copy. It holds when every
step does and the session is alive with its state afterwards.
"""
import pytest

from bashhost import both, ended, has, lives, needs_bash, out, session, st, zygote  # noqa: F401 (fixtures)

pytestmark = needs_bash

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


@pytest.mark.parametrize("trap", ["sleep 30", "while :; do :; done", "read x < <(sleep 30)"])
def test_a_debug_trap_that_never_returns_is_removed(session, trap):
    session.run("keep=keep")
    session.run("trap '%s' DEBUG" % trap)
    assert session.run("echo 1", timeout=0.3).out == b""
    assert "DEBUG trap" in session.run("echo 2", timeout=0.3).body["error"]
    assert session.run("echo $keep").out == b"keep\n"


def test_a_debug_trap_that_returns_stays(session):
    """Also where calls are interrupted in it, but not one after the other, or when a line of theirs has run."""
    session.run("trap '/bin/sleep 0.2' DEBUG")
    for _ in range(3):
        assert session.run("echo 1\nwhile :; do :; done", timeout=0.5).how == "interrupted"
        assert session.run("while :; do :; done", timeout=0.3).how == "interrupted"
    assert b"sleep 0.2" in session.run("trap -p DEBUG").out


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
