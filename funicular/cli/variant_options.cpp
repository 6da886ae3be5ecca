#include "funicular/cli/variant_options.h"

#include "funicular/augment/augment_table.h"
#include "funicular/cli/common_options.h"

namespace funicular::cli {

void VariantOptions::declare(Arguments& arguments) {
  arguments.section("Variants");
  arguments.add("candidates", "M", chosen.candidates, Effect::result, "words that may take a word's place")
      .alias("M")
      .range(1, 1000);
  arguments
      .add("probability", "P", chosen.probability, Effect::result, "that a word gives way, in each variant")
      .alias("p")
      .range(0, 1);
  arguments.add("variants", "N", variants, Effect::result, "variants of each text")
      .common()
      .alias("N")
      .default_text("as published for the task: 30; 20 for sst2 and qnli; 10 for mnli and qqp")
      .range(1, 100'000);
  arguments
      .add("stop-words", "FILE", stop_words, Effect::input,
           "words that stay, one a line; an empty file: none")
      .default_text("English words of grammar");
  words.declare(arguments);
  arguments
      .add("compat", "NAME", compat, Effect::result,
           "tinybert: with all that TinyBERT's published program does otherwise, see "
           "docs/how_to/augmentation.md")
      .choices({"none", "tinybert"});
  declare_max_length(arguments, max_length, "longer texts are read through a window around the word", 5)
      .default_text("the model's longest");
}

void VariantOptions::complete(const std::string& task, const model::Pretrained& pretrained) {
  const int64_t published = augment::published_variants(task);
  chosen.variants = variants.value_or(published > 0 ? published : chosen.variants);
  chosen.max_length = max_length.value_or(pretrained.config().encoder.longest_sequence());
  pretrained.check_max_length(chosen.max_length);
  chosen.published = compat == "tinybert";
  if (!stop_words.empty()) chosen.stop_words = augment::read_stop_words(stop_words);
  chosen.words = words.rules();
}

void VariantOptions::note(Json& identity) const {
  identity["candidates"] = chosen.candidates;
  identity["probability"] = chosen.probability;
  identity["variants"] = chosen.variants;
  identity["compat"] = compat;
  identity["max_length"] = chosen.max_length;
  words.note(identity);
}

}  // namespace funicular::cli
