# sh parallel.sh FOLDER [COUNT]: rotate a database in COUNT ranges, JOBS at once, with GNU parallel.
#
# Needs DATABASE_URL, SEALPOINT_KEYS, and VKEY, the verifier key of the ledger. Ends with the exit code of
# `sealpoint merge`. After a crash, the same command continues with what has not ended; after an error that you
# have corrected, use a new folder.
set -eu
: "$VKEY" # now, and not when all is done
range=$(cd "$(dirname "$0")" && pwd)/range.sh
export range PARALLEL_SHELL=/bin/sh
mkdir -p "$1"
cd "$1"
if ! [ -e ranges ]; then
    sealpoint shards --db-env DATABASE_URL --count "${2:-16}" > ranges.new
    mv ranges.new ranges
fi
# What has a result is not run again: merge says what is wrong with it.
seq "$(wc -l < ranges)" |
    parallel --jobs "${JOBS:-2}" --retries 6 --joblog jobs --resume-failed \
        'sh "$range" ranges {} rotate --apply; code=$?; [ "$code" -lt 6 ] || { sleep "${WAIT:-10}"; exit "$code"; }' || :
sealpoint merge --vkey "$VKEY" [0-9]*.json
