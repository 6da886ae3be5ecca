// funicular vocabulary: trains a tokeniser, proposes words of a domain, and makes them tokens of a model.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/cli/command.h"
#include "funicular/cli/commands_library.h"
#include "funicular/cli/file_style.h"
#include "funicular/cli/foreign_options.h"
#include "funicular/cli/output_paths.h"
#include "funicular/cli/vocabulary_training.h"
#include "funicular/data/split_words.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/format/hub_hint.h"
#include "funicular/format/tokenizer_files.h"

namespace funicular::cli {

namespace {

constexpr const char* kPropose = "propose";
constexpr const char* kExtend = "extend";
constexpr const char* kTrain = "train";

class Vocabulary final : public Command {
 public:
  Vocabulary()
      : Command("vocabulary",
                "vocabulary train makes a new tokeniser from texts. "
                "vocabulary propose prints the words that the tokeniser of --model cuts into pieces, sorted "
                "by how much they would shorten the text. Each line holds a word, its count and its pieces, "
                "with tabs between them. vocabulary extend adds the words of such a list to the WordPiece "
                "vocabulary and writes the model. The new rows of embeddings, decoder and bias are means "
                "over the pieces; nothing else changes.") {
    arguments.example(
        "make a tokeniser of BERT's kind",
        "funicular vocabulary train --kind wordpiece --input texts.txt --output TOKENIZER --size 30000");
    arguments.example("propose the words of a domain",
                      "funicular vocabulary propose --model MODEL --input texts.txt");
    arguments.example("give them to the model",
                      "funicular vocabulary extend --model MODEL --words words.tsv --output EXTENDED");
    arguments.positional("propose|extend|train", action_, "what to do");
    arguments.section("Input and output");
    arguments
        .add("model", "DIR", model_, Effect::input,
             "propose, extend: model folder with a WordPiece tokeniser")
        .takes_model()
        .alias("model-name-or-path")
        .default_text("none");
    arguments
        .add("words", "FILE", words_, Effect::input,
             "extend: new words, one a line; what follows a tab is not read")
        .default_text("none");
    arguments
        .add("output", "DIR", output_, Effect::output,
             "extend, train: folder for the model with these words, or for the tokeniser; it must not exist")
        .default_text("none");
    arguments.add("skip-bad-words", skip_bad_words_, Effect::result,
                  "extend: leave out words that cannot become tokens, and name them, instead of stopping");
    arguments.section("Which words to propose");
    arguments
        .add("input", "PATH", input_, Effect::input,
             "propose, train: text files: a line a row, documents separated by blank lines; train also reads "
             "tsv, csv and jsonl")
        .default_text("none");
    arguments.add("data", "STORE", data_, Effect::input, "propose: token store to take the words of instead")
        .default_text("none");
    written_.declare(arguments, /*tables=*/false);
    arguments.add("count", "N", proposal_.count, Effect::result, "propose: at most so many words").range(1);
    arguments
        .add("min-count", "N", proposal_.least_times, Effect::result,
             "propose: words that stand there so often")
        .formerly("least-times")
        .range(1);
    arguments
        .add("min-pieces", "N", proposal_.least_pieces, Effect::result, "propose: words of so many pieces")
        .formerly("least-pieces")
        .range(2);
    training_.declare(arguments);
  }

  int run() override {
    if (action_ == std::vector<std::string>{kPropose}) return propose();
    if (action_ == std::vector<std::string>{kExtend}) return extend();
    if (action_ == std::vector<std::string>{kTrain}) return train();
    const std::string given = fmt::format("{}", fmt::join(action_, " "));
    if (const std::string_view answer = answer_to_foreign_value("vocabulary", given); !answer.empty())
      throw InputError("usage", "there is no funicular vocabulary {}: {}", given, answer);
    throw InputError("usage",
                     "expected funicular vocabulary propose, funicular vocabulary extend or funicular "
                     "vocabulary train, found \"{}\"",
                     given);
  }

 private:
  /// Options of another action would do nothing.
  void refuse(const char* action, const std::vector<std::string>& options) const {
    for (const std::string& option : options)
      if (arguments.given(option))
        throw InputError("usage", "--{} is for funicular vocabulary {}; leave it out", option, action);
  }
  void require(const char* action, const std::vector<const char*>& options) const {
    for (const char* option : options)
      if (!arguments.given(option))
        throw InputError("usage", "funicular vocabulary {}: --{} is required", action, option);
  }

  int train() {
    refuse(kExtend, {"model", "words", "skip-bad-words"});
    refuse(kPropose, {"data", "count", "min-count", "min-pieces"});
    require(kTrain, {"kind", "input", "output"});
    training_.run(arguments, input_, written_.style(), output_);
    return 0;
  }

  int propose() {
    refuse(kExtend, {"words", "output", "skip-bad-words"});
    refuse(kTrain, training_.option_names());
    require(kPropose, {"model"});
    if (input_.empty() == data_.empty())
      throw InputError("usage",
                       "funicular vocabulary propose takes its words of --input or --data; give one of them");
    if (input_.empty() && arguments.given("encoding"))
      throw InputError("usage", "--encoding is for --input; --data reads a token store");
    if (!fs::exists(model_))
      throw InputError("model", "--model {}: no such folder{}", model_.string(), format::hub_hint(model_));
    const std::unique_ptr<text::Tokenizer> loaded = format::load_tokenizer(model_);
    const text::WordPiece& tokenizer = text::require_word_piece(*loaded, model_);
    const data::SplitWords counted = data::count_split_words(*open_store(tokenizer), tokenizer);
    const std::vector<data::SplitWord> proposed = data::propose_words(counted, tokenizer, proposal_);
    std::vector<text::NewWord> words;
    for (const data::SplitWord& next : proposed) {
      words.push_back({next.word, next.pieces});
      std::vector<std::string> pieces;
      for (const int32_t id : next.pieces) pieces.push_back(tokenizer.vocabulary()[static_cast<size_t>(id)]);
      fmt::print("{}\t{}\t{}\n", next.word, next.times, fmt::join(pieces, " "));
    }
    tell(counted, proposed.size(), tokenizer, words);
    return 0;
  }

  static void tell(const data::SplitWords& counted, size_t proposed, const text::WordPiece& tokenizer,
                   const std::vector<text::NewWord>& words) {
    log::info("{} words{}, {} tokens; {} different words are cut into pieces", counted.occurrences,
              counted.characters > 0
                  ? fmt::format(" ({} are characters of scripts without blanks)", counted.characters)
                  : "",
              counted.tokens, counted.words.size());
    if (counted.unknown)
      log::info("{} tokens are unknown: their words can be added, but not be proposed", counted.unknown);
    if (proposed == 0) return log::warning("no word is frequent enough; --min-count sets how often is");
    const data::Recount now = data::recount(counted, text::with_new_words(tokenizer, words));
    log::info("with these {} words the text has {} tokens, {:.1f} % fewer", proposed, now.tokens,
              100.0 * (1.0 - static_cast<double>(now.tokens) / static_cast<double>(counted.tokens)));
    if (now.newly_unknown)
      log::warning(
          "{} words of the text would become unknown: they begin with a new word, and the vocabulary has no "
          "piece for their other characters",
          now.newly_unknown);
  }

  std::shared_ptr<const data::TokenStore> open_store(const text::Tokenizer& tokenizer) {
    if (!data_.empty()) return data::TokenStore::open(data_);
    temporary_.emplace();
    const fs::path store = temporary_->path() / "input.tokens";
    const data::TextFileSource source(input_,
                                      {.format = format::TextFormat::text, .style = written_.style()});
    data::build_token_store(tokenizer, source, store, {.refuse_empty = true});
    return data::TokenStore::open(store);
  }

  int extend() {
    refuse(kPropose, {"input", "data", "encoding", "count", "min-count", "min-pieces"});
    refuse(kTrain, training_.option_names());
    require(kExtend, {"model", "words", "output"});
    require_folder_name(output_, "--output");
    const CommandsLibrary& library = commands_library();
    library.prepare();
    const model::VocabularyExtension done =
        library.extend_vocabulary(model_, words_, skip_bad_words_, output_);
    if (done.was_complete) log::info("{} is complete already", output_.string());
    constexpr size_t kTold = 5;
    for (size_t i = 0; i < std::min(kTold, done.left_out.size()); ++i)
      log::warning("left out: {}", done.left_out[i]);
    if (done.left_out.size() > kTold)
      log::warning("{} words in all cannot become tokens and were left out", done.left_out.size());
    if (done.unknown)
      log::info("{} of the words were unknown so far, and begin as the unknown token", done.unknown);
    if (done.of_generator) log::info("the generator in the folder got the words, too");
    if (!done.without_piece.empty())
      log::warning(
          "the vocabulary has no piece for {} characters within words, such as \"{}\". A word that begins "
          "with a new word "
          "and continues with such a character becomes unknown",
          done.without_piece.size(), done.without_piece.front());
    fmt::print("{}\n", OrderedJson{{"added", done.added},
                                   {"left_out", done.left_out.size()},
                                   {"tokens", done.before + done.added}}
                           .dump());
    return 0;
  }

  std::vector<std::string> action_;
  fs::path model_, words_, output_, data_;
  std::vector<fs::path> input_;
  bool skip_bad_words_ = false;
  data::ProposalOptions proposal_;
  FileStyleOptions written_;
  VocabularyTraining training_;
  std::optional<TemporaryFolder> temporary_;
};

}  // namespace

std::unique_ptr<Command> make_vocabulary() {
  return std::make_unique<Vocabulary>();
}

}  // namespace funicular::cli
