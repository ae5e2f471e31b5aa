#!/bin/sh
# Compares langs/bash/bash_abi.h with the headers of bash-builtins packages: the installed one, and those unpacked below the
# directories in $FURCA_BASH_HEADERS (each with usr/include/bash). 77 where there are none.
top=${srcdir:-.}
status=77
for root in "" $FURCA_BASH_HEADERS; do
	headers=$root/usr/include/bash
	[ -f "$headers/config.h" ] || continue
	if ${CC:-cc} -std=gnu17 -w -DHAVE_CONFIG_H -DSHELL -fsyntax-only -I"$headers" -I"$headers/include" -I"$headers/builtins" \
		-I"$top" "$top/tests/bash_abi_check.c"; then
		echo "ok: $headers"
		[ $status -ne 77 ] || status=0
	else
		echo "bash_abi.h differs from $headers"
		status=1
	fi
done
[ $status -ne 77 ] || echo "skipped: needs the headers of bash-builtins"
exit $status
