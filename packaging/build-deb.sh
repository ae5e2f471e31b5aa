#!/bin/sh
# Builds the Debian packages of this tree: packaging/build-deb.sh [FOLDER]; they come to lie in FOLDER (default: build-deb). 77: the tools are
# not installed.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$top/build-deb}
for tool in dpkg-buildpackage dh dh_python3; do
	command -v $tool >/dev/null || { echo "skipped: $tool is not installed (apt-get install debhelper dh-python dpkg-dev)"; exit 77; }
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/*.deb
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/furca"
if [ -e "$top/.git" ]; then
	git -c safe.directory='*' -C "$top" ls-files -z | (cd "$top" && tar -cf - --null --ignore-failed-read -T -) | tar -xf - -C "$work/furca"
else
	(cd "$top" && tar -cf - --exclude='./build*' --exclude='./_build*' .) | tar -xf - -C "$work/furca"
fi
cp -r "$work/furca/packaging/debian" "$work/furca/debian"
cd "$work/furca"
[ -x configure ] || ./autogen.sh >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
dpkg-buildpackage -b -us -uc -d >"$work/log" 2>&1 || { tail -60 "$work/log"; exit 1; }
cp "$work"/*.deb "$out"
ls -l "$out"
if command -v lintian >/dev/null; then
	# No bug in Debian's tracker is closed by a package that is not Debian's.
	lintian --suppress-tags initial-upload-closes-no-bugs,bogus-mail-host,bogus-mail-host-in-debian-changelog --fail-on error,warning "$work"/*.changes
else
	echo "lintian is not installed: the packages are not looked at"
fi
