#!/bin/bash
# Tries the set-up as on a new machine: makes a root with debootstrap, copies this tree's sources into it, and runs commands there in
# mount and pid namespaces of their own, so that nothing is left when it ends. Root only; needs debootstrap and a package mirror.
#
#   tests/fresh-root.sh SUITE [COMMAND...]     SUITE: bookworm, trixie (Debian 12, 13), noble (Ubuntu 24.04)
#
# Each COMMAND is one line for a shell in the tree; without any: "./bootstrap run" "./bootstrap check".
# FURCA_FRESH_ROOT=DIR keeps the root there and uses it again. FURCA_FRESH_CACHE=DIR keeps downloaded packages there.
# Exit status: the failed command's; 77 where debootstrap or the mirror is lacking.
set -eu -o pipefail
top=$(cd "$(dirname "$0")/.." && pwd)

skip() { echo "skipped: $*"; exit 77; }
say() { printf 'fresh-root: %s\n' "$*"; }

# ------------------------------------------------------------------------- inside the namespaces, before the root is entered
enter() {
	local root=$1 command
	shift
	mount --make-rprivate /
	mount --rbind "$root" "$root"
	mount -t proc proc "$root/proc"
	mount -t sysfs -o ro sysfs "$root/sys"
	mount -t tmpfs -o mode=755 dev "$root/dev"
	mkdir "$root/dev/shm" "$root/dev/pts"
	mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
	mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
	ln -s pts/ptmx "$root/dev/ptmx"
	ln -s /proc/self/fd "$root/dev/fd"
	for command in stdin:0 stdout:1 stderr:2; do ln -s "/proc/self/fd/${command#*:}" "$root/dev/${command%:*}"; done
	for command in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "$root/dev/${command%:*}" c 1 "${command#*:}"; done
	mknod -m 666 "$root/dev/tty" c 5 0
	cd "$root"
	mkdir -p .before
	# A real root, no chroot: the kernel refuses user namespaces to processes in a chroot.
	pivot_root . .before
	cd /
	umount -l /.before
	export HOME=/root USER=root LOGNAME=root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	export TERM=${TERM:-dumb} DEBIAN_FRONTEND=noninteractive
	unset FURCA FURCA_LIBEXEC FURCA_PROGRAM FURCA_SOCKET XDG_RUNTIME_DIR XDG_STATE_HOME XDG_DATA_HOME XDG_CACHE_HOME PYENV_ROOT TMPDIR
	cd /srv/furca
	for command; do
		say "$command"
		sh -c "$command" </dev/null || return
	done
}

if [ "${1:-}" = --enter ]; then
	shift
	enter "$@"
	exit
fi

# ---------------------------------------------------------------------------------------------------------------- outside
[ $# -ge 1 ] || { sed -n '2,/^set -eu/{s/^# \{0,1\}//;/^set -eu/!p}' "$0"; exit 2; }
suite=$1
shift
[ $# -gt 0 ] || set -- "./bootstrap run" "./bootstrap check"
script=
case $suite in
bookworm | trixie) mirror=${FURCA_FRESH_MIRROR:-http://deb.debian.org/debian} components=main keys=/usr/share/keyrings/debian-archive-keyring.gpg ;;
noble) mirror=${FURCA_FRESH_MIRROR:-http://archive.ubuntu.com/ubuntu} components=main,universe keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg ;;
*) echo "fresh-root: bookworm, trixie or noble, not '$suite'" >&2; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || skip "only root can make a root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
# An older debootstrap does not know a newer suite's name, but how to lay it.
[ -e "/usr/share/debootstrap/scripts/$suite" ] || case $suite in noble) script=gutsy ;; *) script=sid ;; esac
unshare -mpf --mount-proc true 2>/dev/null || skip "this machine gives no mount and pid namespaces"

reaches() {
	/usr/bin/python3 - "$1" <<'PYTHON'
import sys, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=20).read(1)
except Exception as error:
    sys.exit(str(error))
PYTHON
}
reaches "$mirror/dists/$suite/Release" || skip "the mirror $mirror does not give $suite"

if [ -n "${FURCA_FRESH_ROOT:-}" ]; then
	root=$FURCA_FRESH_ROOT
	mkdir -p "$root"
else
	root=$(mktemp -d "${TMPDIR:-/tmp}/furca-root.XXXXXX")
	trap 'rm -rf --one-file-system "$root"' EXIT
fi
if [ ! -e "$root/.laid" ]; then
	say "laying $suite in $root"
	options=(--variant=minbase --components="$components" --include=ca-certificates)
	[ -z "${FURCA_FRESH_CACHE:-}" ] || { mkdir -p "$FURCA_FRESH_CACHE"; options+=(--cache-dir="$FURCA_FRESH_CACHE"); }
	if [ -e "$keys" ]; then options+=(--keyring="$keys"); else say "no keyring $keys here: the archive's signature is not checked"; options+=(--no-check-gpg); fi
	# shellcheck disable=SC2086
	debootstrap "${options[@]}" "$suite" "$root" "$mirror" $script >"$root.log" 2>&1 || { tail -20 "$root.log" >&2; rm -f "$root.log"; exit 1; }
	rm -f "$root.log"
	echo "deb $mirror $suite $(echo "$components" | tr , ' ')" >"$root/etc/apt/sources.list"
	echo 'APT::Sandbox::User "root";' >"$root/etc/apt/apt.conf.d/99fresh-root"
	chmod 755 "$root" # of Ubuntu's packages none does, and no other user could look anything up
	touch "$root/.laid"
fi
# How this machine reaches its networks: resolver, the certificates that it trusts, what pip and apt are told.
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
for file in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
	[ ! -e "$file" ] || { mkdir -p "$root$(dirname "$file")"; cp -L "$file" "$root$file"; }
done
rm -rf "$root/srv/furca"
mkdir -p "$root/srv/furca"
if git -C "$top" rev-parse --git-dir >/dev/null 2>&1; then
	git -C "$top" ls-files -z | (cd "$top" && tar -cf - --null -T - --ignore-failed-read) | tar -xf - --no-same-owner -C "$root/srv/furca"
else
	tar -cf - -C "$top" --exclude='./build*' . | tar -xf - --no-same-owner -C "$root/srv/furca"
fi
unshare -mpf --propagation private "$(readlink -f "$0")" --enter "$root" "$@"
