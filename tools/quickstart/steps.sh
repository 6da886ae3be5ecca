# Sourced by quickstart.sh: what anyone does with texts of their own, command by command.

adapt() {
  title "2. Tokenise: text becomes numbers once, in a file that is mapped into memory"
  for part in train eval; do
    show funicular tokenize --tokenizer "$model" --input "$folder/data/text-$part.txt" \
      --output "$folder/store-$part.tokens"
  done

  title "3. Continue pre-training on this domain: guess hidden words (first only the new head, then everything)"
  show funicular pretrain --model "$model" --data "$folder/store-train.tokens" --eval-data "$folder/store-eval.tokens" \
    --output "$folder/runs/adapt" --objective mlm --freeze-encoder-steps "$head_steps" --max-steps "$steps" \
    --batch-size "$batch" --max-length "$pretrain_length" --learning-rate 3e-4 --warmup-ratio 0.1 --eval-steps "$steps" --save-steps 0
}

finetune() {
  show funicular finetune --model "$1" --task custom --train "$folder/data/train.tsv" --eval "$folder/data/eval.tsv" \
    --output "$folder/runs/$2" --num-train-epochs "$epochs" --batch-size 32 --learning-rate 2e-4 --warmup-ratio 0.1 \
    --max-length "$finetune_length" --save-steps 0
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

classify() {
  title "4. Fine-tune: learn to tell the label of a text"
  finetune "$folder/runs/adapt/model" labels-adapted
  title "5. The same from the model as it came, to see what step 3 was worth"
  finetune "$model" labels-plain

  title "6. Evaluate on texts that neither training nor the choice of a model has seen"
  for run in adapted plain; do
    show funicular evaluate --model "$folder/runs/labels-$run/model" --task custom --data "$folder/data/test.tsv" \
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
  local accuracy f1
  read -r accuracy f1 < <(majority)
  printf '\n%-44s %9s %9s\n' "" accuracy macro-F1
  printf '%-44s %9.3f %9.3f\n' "always the most frequent label" "$accuracy" "$f1"
  printf '%-44s %9.3f %9.3f\n' "fine-tuned, without adaptation" \
    "$(metric accuracy "$folder/evaluation-plain.json")" "$(metric macro_f1 "$folder/evaluation-plain.json")"
  printf '%-44s %9.3f %9.3f\n' "adapted, then fine-tuned" \
    "$(metric accuracy "$folder/evaluation-adapted.json")" "$(metric macro_f1 "$folder/evaluation-adapted.json")"
  [ -z "$fast" ] || say "So little training (--fast) shows the way, not the worth of adaptation: the head alone takes longer to learn."
  say "$(awk 'END { print NR - 1 }' "$folder/data/test.tsv") test texts, $(tail -n +2 "$folder/data/train.tsv" | cut -f 1 | sort -u | wc -l) labels."
}

# A step of the chain: NAME COMMAND, and options as lines of its table.
chain_step() {
  printf '[%s]\ncommand = "%s"\n' "$1" "$2"
  shift 2
  printf '%s\n' "$@" ""
}

# write_chain: the teacher's 3-layer student by both steps of task distillation, the same student from the labels alone in as many
# epochs, and all three measured.
write_chain() {
  local rows=('task = "custom"' 'train = "data/train.tsv"' 'eval = "data/eval.tsv"' "max-length = $finetune_length" "batch-size = 32"
    "learning-rate = 2e-4" "warmup-ratio = 0.1" "save-steps = 0" 'teacher = "runs/labels-adapted/model"')
  chain_step layers distill 'stage = "intermediate"' 'student = "3-layers"' 'init-layers = "even"' "num-train-epochs = $epochs" \
    "${rows[@]}" 'output = "small/layers"'
  chain_step student distill 'stage = "prediction"' 'student = "small/layers/model"' "num-train-epochs = $epochs" "${rows[@]}" \
    'output = "small/student"'
  chain_step alone distill 'stage = "prediction"' 'terms = "hard"' 'student = "3-layers"' 'init-layers = "even"' \
    "num-train-epochs = $((2 * epochs))" "${rows[@]}" 'output = "small/alone"'
  local model
  for model in teacher:runs/labels-adapted student:small/student alone:small/alone; do
    chain_step "test-${model%%:*}" evaluate "model = \"${model#*:}/model\"" 'task = "custom"' 'data = "data/test.tsv"' \
      "output = \"small/tested/${model%%:*}\""
  done
  chain_step page report 'input = ["small/tested/teacher", "small/tested/student", "small/tested/alone", "runs/labels-adapted", "small/student", "small/alone"]' \
    'output = "small/report.html"' 'title = "A small model of package descriptions"'
}

shrink() {
  title "8. Make it small: a student of 3 layers learns from it, by a chain of commands that can be stopped and given again"
  write_chain >"$folder/small.toml"
  say "The steps, and what each reads and makes, are in $folder/small.toml. The last line of each training is its result, and what comes last compares
the teacher, its student, and the same student taught by the labels alone for as long."
  show funicular chain "$folder/small.toml"
}

where_things_are() {
  title "Where things are ($(minutes $((SECONDS - start))) after the build)"
  cat <<TEXT
  $folder/runs/*/model/     the models, as Hugging Face directories: transformers loads them too
  $folder/runs/*/           run.json, metrics.jsonl and TensorBoard events of each run
  $folder/data/             the data of this quickstart
  $folder/small/            the students; report.html shows them beside their teacher (where there were labels)

With your own texts: ./run quickstart --data DIR, or the commands above one by one (docs/quickstart.md);
build/release/funicular --help lists them all.
TEXT
}
