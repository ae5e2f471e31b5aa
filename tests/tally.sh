#!/bin/sh
# Adds up what ran: Check programs, pytest, scripts and the black-box cases. Usage: tally.sh FILE-OR-DIRECTORY...
# From a directory it takes each test's .trs with the .log beside it (automake); a plain file is read as a runner's output.
# Its last line is "N passed, N failed, N skipped"; the exit status is 1 if something failed or nothing ran.
for arg; do
	if [ -d "$arg" ]; then find "$arg" -name '*.trs' | sort; else echo "$arg"; fi
done | {
	passed=0 failed=0 skipped=0
	while read -r file; do
		result= log=$file
		case $file in
		*.trs)
			result=$(sed -n 's/^:global-test-result: //p' "$file")
			log=${file%.trs}.log
			;;
		esac
		# "p f s known": known is 0 where the log holds no runner's closing line.
		counts=$(awk '
			/^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+/ {
				gsub(/[%,:]/, " "); p += $3 - $5 - $7; f += $5 + $7; known = 1
			}
			/^(=+ )?[0-9]+ (passed|failed|skipped|error|errors|deselected|xfailed|warnings?)(, [0-9]+ [a-z]+)* in [0-9.]+s/ ||
			/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ {
				n = split($0, word, /[ ,=]+/)
				for (i = 1; i < n; i++) {
					if (word[i + 1] == "passed") p += word[i]
					if (word[i + 1] == "failed" || word[i + 1] ~ /^errors?$/) f += word[i]
					if (word[i + 1] == "skipped" || word[i + 1] == "xfailed") s += word[i]
				}
				known = 1
			}
			END { print p + 0, f + 0, s + 0, known + 0 }' "$log" 2>/dev/null)
		set -- ${counts:-0 0 0 0}
		passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
		case $result in
		PASS | XFAIL) [ "$4" = 1 ] || passed=$((passed + 1)) ;;
		SKIP) [ "$4" = 1 ] && [ "$3" -gt 0 ] || skipped=$((skipped + 1)) ;;
		FAIL | XPASS | ERROR) [ "$2" -gt 0 ] || failed=$((failed + 1)) ;;
		esac
	done
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
}
