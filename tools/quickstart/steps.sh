# Sourced by quickstart.sh: what anyone does with texts of their own, command by command.

adapt() {
  title "2. Tokenise: text becomes numbers once, in a file that is mapped into memory"
  for part in train eval; do
    show funicular tokenize --tokenizer "$model" --input "$folder/data/text-$part.txt" \
      --output "$folder/store-$part.tokens"
  done

  title "3. Continue pre-training on this domain: guess hidden words (first only the new head, then everything)"
  show funicular pretrain --model "$model" --train "$folder/store-train.tokens" --eval "$folder/store-eval.tokens" \
    --output "$folder/runs/adapt" --objective mlm --freeze-encoder-steps "$head_steps" --max-steps "$steps" \
    --batch-size "$batch" --max-length "$pretrain_length" --learning-rate 3e-4 --warmup-ratio 0.1 --eval-steps "$steps" --save-steps 0 --seed "$seed"
}

finetune() {
  show funicular finetune --model "$1" --task custom --train "$folder/data/train.tsv" --eval "$folder/data/eval.tsv" \
    --output "$folder/runs/$2" --num-train-epochs "$epochs" --batch-size "$finetune_batch" --learning-rate 2e-4 --warmup-ratio 0.1 \
    --max-length "$finetune_length" --save-steps 0 --seed "$seed"
}

# The most frequent label of the training rows, as a classifier: its accuracy and macro-F1 on the test rows.
majority() {
  awk -F '\t' '
    FNR == 1 { file++; next }
    file == 1 { train[$1]++; next }
    { test[$1]++; n++ }
    END {
      for (label in train) if (train[label] > train[best]) best = label
      for (label in test) classes++
      if (!(best in test)) classes++
      p = test[best] / n
      printf "%.4f %.4f\n", p, 2 * p / (1 + p) / classes
    }' "$folder/data/train.tsv" "$folder/data/test.tsv"
}

# score NAME ACCURACY MACRO-F1: a row of a table of results.
score() { printf '%-64s %9.3f %9.3f\n' "$@"; }
# scores NAME FILE: the same from what evaluate wrote.
scores() { score "$1" "$(metric accuracy "$2")" "$(metric macro_f1 "$2")"; }

classify() {
  title "4. Fine-tune: learn to tell the label of a text"
  finetune "$folder/runs/adapt/model" labels-adapted
  title "5. The same from the model as it came, to see what step 3 was worth"
  finetune "$model" labels-plain

  title "6. Evaluate on texts that neither training nor the choice of a model has seen"
  for run in adapted plain; do
    show funicular evaluate --model "$folder/runs/labels-$run/model" --task custom --input "$folder/data/test.tsv" \
      >"$folder/evaluation-$run.json"
    cat "$folder/evaluation-$run.json"
  done
  report | tee "$folder/results.txt"

  title "7. Ask it: lines in, JSON out (the first two of its fields are shown; the others are every label's probability)"
  sed -n '2,5p' "$folder/data/test.tsv" | cut -f 2 | cut -c 1-200 >"$folder/lines.txt"
  show cat "$folder/lines.txt"
  show funicular predict --model "$folder/runs/labels-adapted/model" --input "$folder/lines.txt" \
    --output "$folder/answers.jsonl"
  printf '$ cat %s\n' "$folder/answers.jsonl"
  sed -E 's/^(\{"label": ?"[^"]*", ?"score": ?[-+.0-9e]*).*/\1, …}/' "$folder/answers.jsonl"
  say "The labels that their authors gave: $(sed -n '2,5p' "$folder/data/test.tsv" | cut -f 1 | paste -sd ' ')"
}

report() {
  printf '\n%-64s %9s %9s\n' "" accuracy macro-F1
  # shellcheck disable=SC2046
  score "always the most frequent label" $(majority)
  scores "fine-tuned, without adaptation" "$folder/evaluation-plain.json"
  scores "adapted, then fine-tuned" "$folder/evaluation-adapted.json"
  [ -z "$fast" ] || say "So little training (--fast) shows the way, not the worth of adaptation: the head alone takes longer to learn."
  say "$(awk 'END { print NR - 1 }' "$folder/data/test.tsv") test texts, $(tail -n +2 "$folder/data/train.tsv" | cut -f 1 | sort -u | wc -l) labels."
}

# A step of the chain: NAME COMMAND, and options as lines of its table.
chain_step() {
  printf '[%s]\ncommand = "%s"\n' "$1" "$2"
  shift 2
  printf '%s\n' "$@" ""
}

# write_texts: data/texts.tsv holds the labelled texts and then others of the domain, all without labels: at most $texts rows, no text twice.
write_texts() {
  { tail -n +2 "$folder/data/train.tsv" | cut -f 2
    awk -v RS= '{ gsub(/[\n\t]+/, " "); print }' "$folder/data/text-train.txt"
  } | awk -v limit="$texts" 'BEGIN { print "text" } !($0 in seen) && n++ < limit { seen[$0]; print }' >"$folder/data/texts.tsv"
}

# write_chain LABELLED UNLABELLED: a student of one layer of the teacher that learns its answers to UNLABELLED texts; one layer of the
# model that the teacher was made from, which learn the labels of LABELLED rows in as many steps; all three models measured.
write_chain() {
  local common=('task = "custom"' 'eval = "data/eval.tsv"' 'stage = "prediction"' 'student = "1-layer"' 'init-layers = "even"' "max-length = $finetune_length" "batch-size = $finetune_batch"
    "max-steps = $(($2 * student_epochs / finetune_batch))" 'learning-rate = 2e-4' 'warmup-ratio = 0.1' 'save-steps = 0' "seed = $seed")
  chain_step student distill 'teacher = "runs/labels-adapted/model"' 'train = "data/texts.tsv"' 'cache-teacher = "small/answers"' "${common[@]}" 'output = "small/student"'
  chain_step alone distill 'teacher = "runs/adapt/model"' 'train = "data/train.tsv"' 'terms = "hard"' "${common[@]}" 'output = "small/alone"'
  local model
  for model in teacher:runs/labels-adapted student:small/student alone:small/alone; do
    chain_step "test-${model%%:*}" evaluate "model = \"${model#*:}/model\"" 'task = "custom"' 'input = "data/test.tsv"' \
      "output = \"small/tested/${model%%:*}\""
  done
  chain_step page report 'input = ["small/tested/teacher", "small/tested/student", "small/tested/alone", "runs/labels-adapted", "small/student", "small/alone"]' \
    'output = "small/report.html"' "title = \"A small model: $1 labelled texts, $2 without labels\""
}

shrink() {
  local labelled unlabelled
  title "8. Make it small: a student of one layer learns from the model above, by a chain of commands that can be stopped and rerun"
  write_texts
  labelled=$(awk 'END { print NR - 1 }' "$folder/data/train.tsv")
  unlabelled=$(awk 'END { print NR - 1 }' "$folder/data/texts.tsv")
  write_chain "$labelled" "$unlabelled" >"$folder/small.toml"
  say "The teacher answers $unlabelled texts, of which $labelled have a label that somebody gave; the student learns these answers. The steps are in
$folder/small.toml. The last line of each training is its result."
  show funicular chain "$folder/small.toml"

  printf '\n%-64s %9s %9s\n' "" accuracy macro-F1
  # shellcheck disable=SC2046
  score "always the most frequent label" $(majority)
  scores "the teacher, 6 layers" "$folder/small/tested/teacher/evaluation.json"
  scores "its student, 1 layer" "$folder/small/tested/student/evaluation.json"
  scores "1 layer that learns the $labelled labels alone, as many steps" "$folder/small/tested/alone/evaluation.json"
}

where_things_are() {
  title "Where things are ($(minutes $((SECONDS - start))) after the build)"
  cat <<TEXT
  $folder/runs/*/model/     the models, as Hugging Face directories: transformers loads them too
  $folder/runs/*/           run.json, metrics.jsonl and TensorBoard events of each run
  $folder/data/             the data of this quickstart
  $folder/small/            the students; report.html shows them beside their teacher (where there were labels)

With your own texts: ./run quickstart --data DIR, or the commands above one by one (docs/tutorials/adapt_and_finetune.md);
build/release/funicular --help lists them all.
TEXT
}
