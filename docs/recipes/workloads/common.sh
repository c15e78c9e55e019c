# SPDX-License-Identifier: BSD-2-Clause
#
# What the workloads beside this file share. Each is a program of its own that
# prints what commands may use, then "ready", and runs until SIGTERM.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=${work:-/tmp/shop} # the same in every transcript
rm -rf "$work"
mkdir "$work"
running=()

finish() {
	trap - TERM EXIT
	if [ ${#running[@]} -gt 0 ]; then
		kill "${running[@]}" 2>/dev/null || true
	fi
	if declare -F cleanup >/dev/null; then cleanup; fi
	rm -rf "$work"
}
trap 'exit 0' TERM
trap finish EXIT

# needs ends the workload unless a command is there.
needs() {
	command -v "$1" >/dev/null || { echo "missing $1"; exit 0; }
}

# background runs a command until the end.
background() {
	"$@" >/dev/null 2>&1 &
	running+=($!)
	# It is this shell until it is executed.
	if [ "$(type -t "$1")" = file ]; then
		while [ "/proc/$!/exe" -ef /proc/$$/exe ]; do sleep 0.01; done
	fi
}

ready() {
	echo ready
	while :; do sleep 3600 & wait $!; done
}
