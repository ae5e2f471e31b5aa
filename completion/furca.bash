# bash completion for furca(1)
_furca()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
	local commands="serve stop exec output sessions top inspect close undo branch checkpoint restore envs functions doctor schema mcp bench demo help"
	local session="--socket --json --language --env --help"

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W "$commands --help --version" -- "$cur"))
		return
	fi
	case $prev in
	-l | --language)
		COMPREPLY=($(compgen -W "python bash" -- "$cur"))
		return
		;;
	-m | --mode)
		COMPREPLY=($(compgen -W "stateful stateless read_only" -- "$cur"))
		return
		;;
	-d | --detail)
		COMPREPLY=($(compgen -W "summary names full" -- "$cur"))
		return
		;;
	--on-error)
		COMPREPLY=($(compgen -W "keep rollback" -- "$cur"))
		return
		;;
	--images)
		COMPREPLY=($(compgen -W "auto path kitty iterm" -- "$cur"))
		return
		;;
	--format)
		COMPREPLY=($(compgen -W "mcp openai anthropic" -- "$cur"))
		return
		;;
	--log-level)
		COMPREPLY=($(compgen -W "debug info warn alert" -- "$cur"))
		return
		;;
	--socket | --config | --tools)
		COMPREPLY=($(compgen -f -- "$cur"))
		return
		;;
	--state-dir | --workdir | --cwd)
		COMPREPLY=($(compgen -d -- "$cur"))
		return
		;;
	-s | --session)
		COMPREPLY=($(compgen -W "$(_furca_sessions)" -- "$cur"))
		return
		;;
	esac
	if [[ $cur == -* ]]; then
		local options
		case $command in
		serve) options="--socket --config --state-dir --workdir --linger --log-level --help" ;;
		exec) options="--language --mode --session --env --timeout --code --on-error --cwd --max-output --images --private --socket --json --help" ;;
		output) options="--stderr --offset --length --socket --json --help" ;;
		inspect) options="$session --detail --all" ;;
		close) options="$session --all" ;;
		envs) options="--name --build --socket --json --help" ;;
		functions) options="$session --doc --mode --session" ;;
		doctor) options="--json --help" ;;
		schema) options="--format --help" ;;
		mcp) options="--socket --state-dir --workdir --config --tools --help" ;;
		stop | sessions) options="--socket --json --help" ;;
		top) options="--once --socket --json --help" ;;
		bench) options="--quick --json --help" ;;
		demo) options="--help" ;;
		help) options="" ;;
		*) options=$session ;;
		esac
		COMPREPLY=($(compgen -W "$options" -- "$cur"))
		return
	fi
	case $command in
	inspect | close | undo | branch | checkpoint | restore) COMPREPLY=($(compgen -W "$(_furca_sessions)" -- "$cur")) ;;
	envs) ((COMP_CWORD == 2)) && COMPREPLY=($(compgen -W "list create build remove" -- "$cur")) || COMPREPLY=($(compgen -f -- "$cur")) ;;
	functions) ((COMP_CWORD == 2)) && COMPREPLY=($(compgen -W "list add remove call" -- "$cur")) || COMPREPLY=($(compgen -f -- "$cur")) ;;
	bench) ((COMP_CWORD == 2)) && COMPREPLY=($(compgen -W "$(furca bench 2>/dev/null)" -- "$cur")) ;;
	help) COMPREPLY=($(compgen -W "$commands" -- "$cur")) ;;
	exec) COMPREPLY=($(compgen -f -- "$cur")) ;;
	demo) COMPREPLY=($(compgen -d -- "$cur")) ;;
	esac
}

# Names of the sessions of the engine that runs, if one does.
_furca_sessions()
{
	furca sessions --json 2>/dev/null | grep -o '"session_name":"[^"\\]*"' | cut -d'"' -f4
}

complete -F _furca furca
