#!/bin/bash
# Runs the steps of Dockerfile without Docker: each stage is a Debian root of its own (tests/fresh-root.sh), and what the last one's
# ENTRYPOINT and CMD would start is run there. Knows FROM, COPY, WORKDIR, RUN, ENTRYPOINT and CMD on one line each; anything else fails, so that
# the test is extended with the file. Root only. 77: debootstrap, the mirror or namespaces are lacking.
set -eu -o pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/var/tmp}/furca-dockerfile.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
declare -A root
count=0 stage= entry= folder=/

# in_stage COMMAND: in the stage's root, in its folder. fresh-root.sh lays the root where it is not there yet.
in_stage() { FURCA_FRESH_ROOT=${root[$stage]} "$top/tests/fresh-root.sh" bookworm "cd $folder && $1"; }

words() { /usr/bin/python3 -c 'import json, shlex, sys; print(" ".join(map(shlex.quote, json.loads(sys.argv[1]))))' "$1"; }

while read -r verb rest <&3; do
	case $verb in
	'' | '#'*) continue ;;
	FROM)
		[[ $rest == debian:bookworm* ]] || { echo "dockerfile: FROM $rest is not known here"; exit 1; }
		count=$((count + 1)) folder=/ stage=$count
		[[ $rest != *' AS '* ]] || stage=${rest##* AS }
		root[$stage]=$work/$count
		[ -d "$work/base" ] || FURCA_FRESH_ROOT=$work/base "$top/tests/fresh-root.sh" bookworm true || exit
		cp -a "$work/base" "${root[$stage]}"
		;;
	WORKDIR) folder=$rest ;;
	COPY)
		read -r first second third <<<"$rest"
		if [[ $first == --from=* ]]; then
			cp -a "${root[${first#--from=}]}$second/." "${root[$stage]}$third"
		elif [[ "$first" == . ]]; then
			# What fresh-root.sh copies into each root is what `docker build` sends.
			in_stage "mkdir -p $second && cp -a /srv/furca/. $second"
		else
			echo "dockerfile: COPY $rest is not known here"
			exit 1
		fi
		;;
	RUN) in_stage "$rest" ;;
	ENTRYPOINT) entry=$(words "$rest") ;;
	CMD) in_stage "cd / && $entry $(words "$rest") && $entry exec --private -e '6 * 7'" | tee "$work/said" ;;
	*)
		echo "dockerfile: $verb is not known here"
		exit 1
		;;
	esac
done 3<"$top/Dockerfile"
grep -qx 42 "$work/said"
echo "the Dockerfile's $count stages build and run"
