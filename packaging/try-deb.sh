#!/bin/sh
# Installs the packages of a folder in an overlay of this machine, thrown away afterwards, and runs what they brought: packaging/try-deb.sh FOLDER.
# Root only. 77: this machine gives no namespaces or overlays.
set -eu
if [ "${1:-}" = --inside ]; then
	folder=$2
	mount --make-rprivate /
	mount -t tmpfs tmpfs /mnt
	mkdir /mnt/up /mnt/work /mnt/root
	mount -t overlay -o lowerdir=/,upperdir=/mnt/up,workdir=/mnt/work overlay /mnt/root
	for one in proc sys dev; do mount --rbind /$one /mnt/root/$one; done
	mount -t tmpfs tmpfs /mnt/root/tmp
	mkdir /mnt/root/tmp/deb
	cp "$folder"/*.deb /mnt/root/tmp/deb
	mkdir -p /mnt/root/.before
	cd /mnt/root
	pivot_root . .before
	umount -l /.before
	cd /tmp
	export HOME=/tmp XDG_RUNTIME_DIR=/tmp XDG_STATE_HOME=/tmp/state LC_ALL=C.UTF-8
	unset FURCA FURCA_LIBEXEC FURCA_PROGRAM FURCA_SOCKET PYTHONPATH
	dpkg -i deb/*.deb >log 2>&1 || { cat log; exit 1; }
	set -x
	furca --version
	furca doctor >/dev/null
	[ "$(furca exec --private -e '6 * 7')" = 42 ]
	furca exec -s audit -m stateful -e 'rows = [3, 1, 2]'
	[ "$(furca exec -s audit -m read_only -e 'rows.sort(); rows')" = "[1, 2, 3]" ]
	[ "$(furca exec -s audit -m read_only -e 'rows')" = "[3, 1, 2]" ]
	[ "$(furca exec -l bash -e 'echo $((6 * 7))')" = 42 ]
	furca bench | grep -q call
	furca stop
	/usr/bin/python3 -c 'import furca; e = furca.Engine(start=True); assert e.session("s").run("1 + 1").value == 2; e.close()'
	[ -s /usr/lib/systemd/user/furca.service ] && ls /usr/share/doc/furca/operations.md* >/dev/null
	if command -v systemd-analyze >/dev/null; then XDG_RUNTIME_DIR=$PWD systemd-analyze --user --man=no verify /usr/lib/systemd/user/furca.service; fi
	if command -v man >/dev/null; then man --warnings -l /usr/share/man/man1/furca.1* >/dev/null; fi
	bash -c '. /usr/share/bash-completion/completions/furca.bash; COMP_WORDS=(furca se) COMP_CWORD=1; _furca; [ "${COMPREPLY[0]}" = serve ]'
	printf '#include <furca.h>\nint main(void) { char p[200]; return furca_default_socket(p, sizeof(p)) < 0; }\n' >t.c
	cc t.c -o t $(pkg-config --cflags --libs furca) && ./t
	dpkg -r $(for deb in deb/*.deb; do dpkg-deb -f "$deb" Package; done) >/dev/null
	set +x
	left=$(find /usr -path '*furca*' ! -path '*/doc/*' -newer log | head)
	[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
	echo "the packages install, work and go again"
	exit
fi
[ "$(id -u)" = 0 ] || { echo "skipped: only root can install packages"; exit 77; }
unshare -mpf --mount-proc true 2>/dev/null || { echo "skipped: this machine gives no mount and pid namespaces"; exit 77; }
exec unshare -mpf --mount-proc "$(readlink -f "$0")" --inside "$(readlink -f "$1")"
