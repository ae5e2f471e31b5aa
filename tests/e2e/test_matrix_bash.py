"""The mutation matrix for bash: each attempt runs once in a subshell of the session, where it must change something (so that it is
real), and once in a read-only call, where it must not. What Python code can try stands in tests/matrix."""
import os
import shutil
import socket
import threading
import uuid

import pytest

# name, setup (in the session), attack, a test that is true when something outside was changed; `needs` a command.
ATTEMPTS = [
    ("overwrite", "", "echo changed >f", '[ "$(<f)" != original ]'),
    ("append", "", "echo more >>f", '[ "$(<f)" != original ]'),
    ("overwrite against noclobber", "set -C", "echo changed >|f", '[ "$(<f)" != original ]'),
    ("here-document", "", "cat >f <<<changed", '[ "$(<f)" != original ]'),
    ("tee", "", "echo changed | tee f >/dev/null", '[ "$(<f)" != original ]'),
    ("tee -a in a pipeline of jobs", "", "echo x | cat | tee -a f >/dev/null", '[ "$(<f)" != original ]'),
    ("sed -i", "", "sed -i s/orig/X/ f", '[ "$(<f)" != original ]'),
    ("perl -i", "", "perl -i -pe s/orig/X/ f", '[ "$(<f)" != original ]', "perl"),
    ("awk", "", "awk 'BEGIN { print \"changed\" >\"f\" }'", '[ "$(<f)" != original ]'),
    ("dd", "", "printf X | dd of=f conv=notrunc status=none", '[ "$(<f)" != original ]'),
    ("truncate", "", "truncate -s 0 f", "[ ! -s f ]"),
    ("python", "", "python3 -c 'open(\"f\", \"w\")'", "[ ! -s f ]", "python3"),
    ("patch", "printf -- '--- f\\n+++ f\\n@@ -1 +1 @@\\n-original\\n+changed\\n' >p", "patch -s f p", '[ "$(<f)" != original ]', "patch"),
    ("new file", "", ": >new", "[ -e new ]"),
    ("new file by touch", "", "touch new", "[ -e new ]"),
    ("new file through the parent directory", "", ": >../${PWD##*/}/new", "[ -e new ]"),
    ("new file through /proc/self/cwd", "", ": >/proc/self/cwd/new", "[ -e new ]"),
    ("new file through /proc/$$/cwd", "", ": >/proc/$$/cwd/new", "[ -e new ]"),
    ("rm", "", "rm f", "[ ! -e f ]"),
    ("rm -rf of a tree", "mkdir -p t/u; : >t/u/x", "rm -rf t", "[ ! -e t/u/x ]"),
    ("find -delete", "mkdir t; : >t/x", "find t -delete", "[ ! -e t/x ]"),
    ("mv", "", "mv f g", "[ ! -e f ]"),
    ("mv over", "echo changed >g", "mv g f", '[ "$(<f)" != original ]'),
    ("mv of a directory", "mkdir d; : >d/x", "mv d e", "[ ! -e d/x ]"),
    ("cp", "", "cp f g", "[ -e g ]"),
    ("ln", "", "ln f g", "[ -e g ]"),
    ("ln -s", "", "ln -s f g", "[ -L g ]"),
    ("write through a symbolic link", "ln -s f g", "echo changed >g", '[ "$(<f)" != original ]'),
    ("write through a hard link", "ln f g", "echo changed >>g", '[ "$(<f)" != original ]'),
    ("mkdir", "", "mkdir -p d/e", "[ -d d ]"),
    ("rmdir", "mkdir d", "rmdir d", "[ ! -d d ]"),
    ("mkfifo", "", "mkfifo p", "[ -p p ]"),
    ("chmod", "", "chmod 777 f", '[ "$(stat -c %a f)" = 777 ]'),
    ("touch -d", "", "touch -d @1 f", '[ "$(stat -c %Y f)" = 1 ]'),
    ("install", "", "install -m 700 f g", "[ -e g ]"),
    ("tar", "mkdir d; : >d/x; tar cf a.tar d; rm -r d", "tar xf a.tar", "[ -e d ]", "tar"),
    ("git", "", "git init -q . 2>/dev/null", "[ -d .git ]", "git"),
    ("mktemp", "", "mktemp -p . left.XXXX >/dev/null", "compgen -G 'left.*' >/dev/null"),
    ("file in /tmp", "n=/tmp/furca-left-$RANDOM$RANDOM", ": >$n", "[ -e $n ] && rm $n"),
    ("file in /dev/shm", "n=/dev/shm/furca-left-$RANDOM$RANDOM", ": >$n", "[ -e $n ] && rm $n"),
    ("file in the home directory", "HOME=$PWD", ": >~/left", "[ -e left ]"),
    ("history written", "HISTFILE=$PWD/h; set -o history", "history -s x; history -w", "[ -e h ]"),
    ("write an inherited descriptor", "exec 5<>f", "echo X >&5", '[ "$(<f)" != original ]'),
    ("append by an inherited descriptor", "exec 5>>f", "echo X >&5", '[ "$(<f)" != original ]'),
    ("read moves an inherited offset", "exec 5<f", "read -n 3 -u 5 x", 'read -n 3 -u 5 x; [ "$x" != ori ]'),
    ("a program moves an inherited offset", "exec 5<f", "head -c 3 <&5 >/dev/null", 'read -n 3 -u 5 x; [ "$x" != ori ]'),
    ("open an inherited descriptor again", "exec 5<f", "echo X >/dev/fd/5", '[ "$(<f)" != original ]'),
    ("open a descriptor of $$ again", "exec 5<f", "echo X >/proc/$$/fd/5", '[ "$(<f)" != original ]'),
    ("write a deleted file", "exec 5<>f; rm f", "echo X >&5", '[ "$(head -c 8 /dev/fd/5)" != original ]'),
    ("inherited descriptor of a FIFO", "mkfifo p; exec 5<>p", "echo X >&5", "read -t 0.3 -u 5 x"),
    ("take from a FIFO", "mkfifo p; exec 5<>p; echo X >&5", "read -u 5 x", "! read -t 0.3 -u 5 x"),
    ("a FIFO by its name", "mkfifo p; exec 5<>p", "timeout 1 sh -c 'echo X >p'", "read -t 0.3 -u 5 x"),
    ("write to a coprocess", "coproc cat; exec 7>&${COPROC[1]}", "echo X >&7", "read -t 0.3 -u ${COPROC[0]} x"),
    ("read from a coprocess", "coproc cat; exec 7<&${COPROC[0]}; echo X >&${COPROC[1]}; sleep 0.1", "read -t 1 -u 7 x", "! read -t 0.3 -u 7 x"),
    ("write to a process substitution", "exec 5> >(cat >o)", "echo X >&5", "sleep 0.2; [ -s o ]"),
    ("release a lock", "exec 5>f.lock; flock 5", "flock -u 5", "flock -n f.lock true", "flock"),
    ("keep a lock", ": >f.lock", "(exec 5>f.lock; flock 5; exec sleep 3) >/dev/null 2>&1 & sleep 0.2", "! flock -n f.lock true", "flock"),
    ("kill a job by its number", "sleep 30 & p=$!", "kill $p", "sleep 0.1; ! kill -0 $p 2>/dev/null"),
    ("stop a job", "sleep 30 & p=$!", "kill -STOP $p", 'sleep 0.1; [ "$(cut -d" " -f3 /proc/$p/stat)" = T ]'),
    ("pkill by name", "n=furca$RANDOM; cp $(type -P sleep) $n; ./$n 30 & p=$!", "pkill -x $n", "sleep 0.1; ! kill -0 $p 2>/dev/null", "pkill"),
    ("signal the session", "n=0; trap 'n=1' USR1", "trap '' USR1; kill -USR1 $$", "sleep 0.1; [ $n = 1 ]"),
    ("priority of a job", "sleep 30 & p=$!", "renice -n 7 -p $p >/dev/null", '[ "$(cut -d" " -f19 /proc/$p/stat)" = 7 ]'),
    ("priority of the session", "", "renice -n 7 -p $$ >/dev/null", '[ "$(cut -d" " -f19 /proc/$$/stat)" = 7 ]'),
    ("limits of the session", "", "prlimit --pid $$ --nofile=100:200", '[ "$(ulimit -n)" = 100 ]', "prlimit"),
    ("affinity of a job", "sleep 30 & p=$!", "taskset -pc 0 $p >/dev/null", '[ "$(taskset -pc $p)" != "${affinity/\\$p/$p}" ] && [[ $(taskset -pc $p) = *": 0" ]]', "taskset"),
    ("a process is left behind", "n=furca$RANDOM; cp $(type -P sleep) $n", "setsid ./$n 5 >/dev/null 2>&1 & sleep 0.1", "sleep 1; pgrep -x $n >/dev/null", "pgrep"),
    ("a process left behind writes later", "", "(sleep 0.3; echo late >f) >/dev/null 2>&1 &", 'sleep 0.6; [ "$(<f)" != original ]'),
    ("/proc/$$/oom_score_adj", "", "echo 500 >/proc/$$/oom_score_adj", '[ "$(</proc/$$/oom_score_adj)" = 500 ]'),
    ("a SysV queue is left behind", "before=$(ipcs -q | wc -l)", "id=$(ipcmk -Q); echo ${id##* } >id", '[ $(ipcs -q | wc -l) != $before ] && ipcrm -q $(<id)', "ipcmk"),
    ("connect by /dev/tcp", "", "exec 6<>/dev/tcp/127.0.0.1/$PORT; echo hello >&6", "HIT"),
    ("connect by a program", "", "python3 -c \"import socket; socket.create_connection(('127.0.0.1', $PORT)).send(b'x')\"", "HIT", "python3"),
    ("connect to a unix socket", "", "python3 -c \"import socket; s = socket.socket(1); s.connect('$SOCK'); s.send(b'x')\"", "HIT", "python3"),
]

CONTROLS = [  # a subshell does not get these through either
    ("kill a job by %1", "sleep 30 & p=$!", "kill %1", "sleep 0.1; ! kill -0 $p 2>/dev/null"),
    ("variables", "x=1", "x=2", '[ "$x" != 1 ]'),
    ("functions", "f1() { echo a; }", "f1() { echo b; }", '[ "$(f1)" != a ]'),
    ("arrays", "a=(1 2)", "a+=(3)", "[ ${#a[@]} != 2 ]"),
    ("options", "", "set -f; shopt -s nullglob", "[[ $- = *f* ]]"),
    ("directory", "d=$PWD", "cd /", '[ "$PWD" != "$d" ]'),
    ("umask", "umask 022", "umask 077", '[ "$(umask)" != 0022 ]'),
    ("limits", "n=$(ulimit -Sn)", "ulimit -Sn 50", '[ "$(ulimit -Sn)" != $n ]'),
    ("descriptors", "exec 5<f", "exec 5<&-", "! { : <&5; } 2>/dev/null"),
    ("traps", "trap 'echo a' USR1", "trap - USR1", '[ -z "$(trap -p USR1)" ]'),
]


@pytest.fixture(scope="module")
def listener(tmp_path_factory):
    """A TCP port and a unix socket, and how many have connected to them."""
    hits = []
    path = str(tmp_path_factory.mktemp("l") / "s")
    tcp, unix = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    unix.bind(path)
    unix.listen()

    def serve(s):
        while True:
            try:
                s.accept()
            except OSError:
                return
            hits.append(1)

    for s in (tcp, unix):
        threading.Thread(target=serve, args=(s,), daemon=True).start()
    yield tcp.getsockname()[1], path, hits
    tcp.close()
    unix.close()


def attempt(client, where, listener, setup, attack, test, read_only):
    """Whether something outside changed."""
    port, path, hits = listener
    os.mkdir(where)
    with open(os.path.join(where, "f"), "w") as f:
        f.write("original\n")
    name = uuid.uuid4().hex[:12]
    answer = client.bash("cd %s; PORT=%d; SOCK=%s; affinity=$(taskset -pc $$ 2>/dev/null)\n%s" % (where, port, path, setup),
                         state_mode="stateful", session_name=name)
    assert answer["ok"], answer["error"]
    before = len(hits)
    if read_only:
        answer = client.bash(attack, state_mode="read_only", session_name=name, timeout_s=10)
    else:
        answer = client.bash("(\n%s\n)" % attack, state_mode="stateful", session_name=name, timeout_s=10)
    told = answer["stderr"] or answer["error"] or ""
    if test == "HIT":
        threading.Event().wait(0.2)
        changed = len(hits) > before
    else:
        answer = client.bash("if %s; then echo changed; fi" % test, state_mode="stateful", session_name=name)
        changed = not answer["ok"] or "changed" in answer["stdout"]
    client.bash("kill $(jobs -p) 2>/dev/null; :", state_mode="stateful", session_name=name)
    client.call("close_session", session_name=name, language="bash")
    return changed, told


@pytest.mark.parametrize("row", ATTEMPTS, ids=[row[0] for row in ATTEMPTS])
def test_attempt(client, tmp_path, listener, row):
    name, setup, attack, test = row[:4]
    if len(row) > 4 and not shutil.which(row[4]):
        pytest.skip("needs " + row[4])
    changed, told = attempt(client, str(tmp_path / "plain"), listener, setup, attack, test, False)
    assert changed, "not real: a subshell does not get it through: " + told
    changed, told = attempt(client, str(tmp_path / "copy"), listener, setup, attack, test, True)
    assert not changed, "a read-only call let it through: " + told


@pytest.mark.parametrize("row", CONTROLS, ids=[row[0] for row in CONTROLS])
def test_control(client, tmp_path, listener, row):
    changed, told = attempt(client, str(tmp_path / "copy"), listener, *row[1:4], True)
    assert not changed, told
