#!/bin/sh
# Each header compiles alone, twice included. Usage: check-headers.sh [SRCDIR [BUILDDIR]]; CC and CFLAGS are taken from the environment.
top=${1:-${srcdir:-.}}
build=${2:-.}
bad=0 count=0
for header in $(cd "$top" && find base bridge snapshot langs engine bench -name '*.h' ! -path 'bridge/python/*' | sort); do
	flags=
	case $header in
	langs/python/*) flags=$PYTHON_CFLAGS ;;
	*/arch_*.h) case $header in */arch_"$(uname -m)".h) ;; *) continue ;; esac ;;
	esac
	count=$((count + 1))
	if ! printf '#include "%s"\n#include "%s"\nint header_compiles;\n' "$header" "$header" |
		${CC:-cc} -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -Werror -fsyntax-only -I"$top" -I"$top/include" -I"$build" \
			$HEADER_CFLAGS $flags -x c -; then
		echo "$header does not compile alone"
		bad=$((bad + 1))
	fi
done
echo "$count headers, $bad bad"
[ "$bad" -eq 0 ]
