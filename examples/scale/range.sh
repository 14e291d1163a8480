# sh range.sh RANGES NUMBER COMMAND...: run a command of sealpoint on the range in line NUMBER of the file RANGES.
#
# Its result is NUMBER.json in the current folder, complete or absent: it is written under another name first. The
# exit code is sealpoint's (docs/results.md). After 6, 7 or a kill there is no result: run the range again.
#
# Ids of threads are hostile text. A line of `sealpoint shards` has each word in single quotes, and in it no single
# quote and nothing that does not print, so that eval expands nothing of it.
set -eu
ranges=$1 number=$2
shift 2
line=$(sed -n "${number}p" "$ranges")
case $line in
--run=*) eval "set -- \"\$@\" $line" ;;
*) echo "error: $ranges has no range in line $number" >&2 && exit 2 ;; # never without a range: that is everything
esac

new=$(mktemp "$number.json.XXXXXX")
sealpoint "$@" --db-env DATABASE_URL --json > "$new" &
trap 'kill "$!" || :' TERM INT HUP # it ends after its batch
wait "$!" && code=0 || code=$?
while [ "$code" -gt 128 ] && kill -0 "$!" 2> /dev/null; do # a signal has ended the wait
    wait "$!" && code=0 || code=$?
done
if [ "$code" -lt 6 ]; then mv "$new" "$number.json"; else rm "$new"; fi
exit "$code"
