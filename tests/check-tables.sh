#!/bin/sh
# Numbers and names of the tables are unique, and the tables in doc/ are those of the sources.
# Usage: check-tables.sh [SRCDIR]
top=${1:-${srcdir:-.}}
cd "$top" || exit 2
status=0

# unique FILE WHAT AWK-PROGRAM: the program prints one key a line, which must not repeat.
unique() {
	again=$(awk -F'[(),]' "$3" "$1" | sort | uniq -d)
	if [ -n "$again" ]; then
		echo "$1: $2 used twice: $again"
		status=1
	fi
}
unique base/err.def "number" '/^ERR\(/ { print $3 + 0 }'
unique base/err.def "name" '/^ERR\(/ { print $2 }'
unique base/fault.def "name" '/^FAULT\(/ { print $2 }'
unique snapshot/barrier.def "bit" '/^BARRIER\(/ { print $3 + 0 }'
unique snapshot/barrier.def "word" '/^BARRIER\(/ { print $4 }'
unique bridge/wire/messages.def "method number" '/^METHOD\(/ { print $3 + 0 }'
unique bridge/wire/messages.def "method name" '/^METHOD\(/ { print $2 }'
unique bridge/wire/messages.def "frame number" '/^(HOST|LANE|INIT)\(/ { print $3 + 0 }'
unique bridge/wire/messages.def "frame name" '/^(HOST|LANE|INIT)\(/ { print $2 }'

words=" validation exception exit timeout interrupted crashed killed oom environment isolation limit internal "
for type in $(awk -F'"' '/^ERR\(/ { print $2 }' base/err.def); do
	case $words in
	*" $type "*) ;;
	*) echo "base/err.def: '$type' is not an error_type of the contract"; status=1 ;;
	esac
done

"${PYTHON:-/usr/bin/python3}" doc/tables.py --check || status=1
exit $status
