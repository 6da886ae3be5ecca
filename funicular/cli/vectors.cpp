// funicular vectors: small word vectors from a corpus.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "funicular/augment/vector_training.h"
#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/base/made_record.h"
#include "funicular/base/progress.h"
#include "funicular/chain/step.h"
#include "funicular/cli/command.h"
#include "funicular/cli/file_style.h"
#include "funicular/cli/options.h"
#include "funicular/cli/word_options.h"
#include "funicular/data/row_source.h"
#include "funicular/format/sentence_folder.h"
#include "funicular/task/static_vectors.h"

namespace funicular::cli {

namespace {

void declare_vectors(Arguments& arguments, augment::VectorTrainingOptions& options) {
  arguments.section("Vectors");
  arguments.add("size", "N", options.size, Effect::result, "numbers of a vector")
      .alias("vector-size")
      .range(1, 4096);
  arguments
      .add("window", "WORDS", options.window, Effect::result,
           "how far from each other words count, within a row")
      .range(1, 1000);
  arguments.add("min-count", "N", options.min_count, Effect::result, "rarer words get no vector").range(1);
  arguments.add("max-words", "N", options.most_words, Effect::result, "only the most frequent words")
      .alias("max-vocab")
      .range(2, 10'000'000);
  arguments.add("lower-case", options.lower_case, Effect::result,
                "words are told apart without regard to case");
  arguments.add("negatives", "N", options.negatives, Effect::result, "words drawn against each pair")
      .range(1, 1000);
  arguments.add("epochs", "N", options.epochs, Effect::result, "passes over the counted pairs")
      .alias("num-train-epochs")
      .range(1);
  arguments.add("learning-rate", "RATE", options.learning_rate, Effect::result, "AdaGrad's")
      .alias("lr")
      .above(0);
}

class Vectors final : public Command {
 public:
  Vectors()
      : Command("vectors",
                "Trains word vectors (skip-gram with negative samples), for funicular augment --vectors, so "
                "that no downloaded file is needed. The result does not depend on the number of threads. The "
                "last line of output is one JSON object.") {
    arguments.example("train word vectors", "funicular vectors --input texts.txt --output vectors.txt");
    arguments.example("train small ones of the frequent words",
                      "funicular vectors --input texts.txt --output small.txt --min-count 20 --size 50");
    arguments.section("Input and output");
    arguments.example("make static embeddings of an encoder",
                      "funicular vectors --from MODEL --output static");
    arguments.add("input", "PATH", input_, Effect::input, "text files, or tables with --text-column")
        .required_unless("from");
    arguments
        .add("from", "DIR", static_.from, Effect::input,
             "make static embeddings of this encoder, without texts: a vector of --size (256) numbers for "
             "each token; "
             "--output is then a folder for funicular embed")
        .takes_model()
        .default_text("none");
    arguments
        .add("output", "FILE", output_, Effect::output,
             "the vectors, as text; the file appears when it is complete")
        .required();
    arguments.add("overwrite", overwrite_, Effect::none,
                  "replace the file or folder of --output if there is one");
    arguments
        .add("output-format", "NAME", form_, Effect::result,
             "word2vec's begins with a line of the numbers of words and of numbers")
        .choices({"glove", "word2vec"});
    arguments.add("format", "NAME", format_, Effect::result, "text: a line a row; lines, tsv, csv, jsonl")
        .choices({"text", "lines", "tsv", "csv", "jsonl"})
        .default_text("by the first file's name");
    arguments
        .add("text-column", "COLUMN", columns_, Effect::result,
             "columns with texts in a table, by name, JSON key, or number from 1")
        .alias("text-columns")
        .default_text("the first, or text");
    arguments
        .add("header", header_, Effect::result,
             "the first row of TSV and CSV names the columns; --no-header: it is data")
        .default_text("on");
    written_.declare(arguments);
    words_.declare(arguments);
    declare_vectors(arguments, options_);
    arguments.section("Machine and randomness");
    declare_seed(arguments, options_.seed, "of the first values and of the order of pairs");
    arguments.add("threads", "N", device_.threads, Effect::none, "threads; does not change the result")
        .default_text("all cores, or what the container may use")
        .range(1, 4096);
  }

  int run() override {
    if (!static_.from.empty()) return make_static();
    require_parent_folder(output_, "--output");
    require_ending(output_, "--output", {"txt", "vec", "vectors", "glove", "word2vec", "w2v"});
    std::vector<fs::path> read = input_;
    if (!words_.dictionary.empty()) read.push_back(words_.dictionary);
    std::error_code error;
    for (const fs::path& file : read)
      if (fs::equivalent(file, output_, error))
        throw InputError("usage", "{} would be replaced by the vectors; choose another --output",
                         file.string());
    const Json made_of = identity();
    if (const Json done = counts_if_made_of(output_, made_of); !done.is_null()) {
      log::info("{} is complete already", output_.string());
      fmt::print("{}\n", done.dump());
      return 0;
    }
    require_new_file(output_, "--output", overwrite_);
    device_.apply();
    options_.words = words_.rules();
    const data::TextFileSource source(input_, layout());
    const InterruptGuard guard;
    augment::TrainedVectors trained;
    {
      Progress progress("vectors", 1000);
      trained = augment::train_vectors(source, options_, [&](const char* what, double share) {
        stop_if_interrupted("vectors", "nothing was written");
        progress.show(fmt::format("{} {:.0f} %", what, 100 * share));
      });
    }
    const Json result{{"words", trained.words.size()},
                      {"size", trained.size},
                      {"pairs", trained.pairs},
                      {"loss", trained.loss}};
    augment::write_vectors(trained, output_, form_ == "word2vec", [&](const fs::path& written) {
      write_made_record(output_, hash_of_output(written), made_of, result);
    });
    log::info("{}: {} words of {} numbers, from {} pairs of words", output_.string(), trained.words.size(),
              trained.size, trained.pairs);
    fmt::print("{}\n", result.dump());
    return 0;
  }

 private:
  int make_static() {
    static const std::vector<std::string> kUsed{"from", "output", "overwrite", "size", "threads", "config"};
    for (const Arguments::Setting& setting : arguments.settings())
      if (setting.given && std::ranges::find(kUsed, setting.name) == kUsed.end())
        throw InputError("usage", "--{} is for vectors of words; leave it out with --from", setting.name);
    check_static_output();
    device_.apply();
    if (arguments.given("size")) static_.width = options_.size;
    const int64_t tokens = task::make_static_vectors(static_, output_);
    fmt::print("{}\n", Json({{"tokens", tokens}, {"size", static_.width}}).dump());
    return 0;
  }

  /// --overwrite replaces no more than a folder that this command has made.
  void check_static_output() const {
    require_folder_name(output_, "--output");
    if (chain::lies_in(output_, static_.from) || chain::lies_in(static_.from, output_))
      throw InputError("usage",
                       "--output {}: the encoder's folder is {}, and it would be replaced; choose a folder "
                       "outside of it",
                       output_.string(), static_.from.string());
    if (!fs::exists(output_) || (fs::is_directory(output_) && fs::is_empty(output_))) return;
    if (!format::is_sentence_folder(output_) || !format::read_sentence_folder(output_).is_static)
      throw InputError("usage",
                       "--output {}: expected a new folder, or one with static embeddings to overwrite; "
                       "choose another folder",
                       output_.string());
    if (!overwrite_)
      throw InputError("usage", "--output {} is there already; choose another folder, or give --overwrite",
                       output_.string());
  }

  /// Everything that decides the vectors; null if an input cannot be read twice.
  Json identity() const {
    Json inputs = Json::array();
    for (const fs::path& input : input_) {
      if (!fs::is_regular_file(input)) return {};
      inputs.push_back(hash_text(hash_file(input)));
    }
    Json all{{"version", 1},
             {"input", inputs},
             {"format", format_.empty() ? format::text_ending_of(input_.front()) : format_},
             {"columns", columns_},
             {"encoding", written_.style().encoding},
             {"quotes", written_.quotes},
             {"header", header_},
             {"output_format", form_},
             {"size", options_.size},
             {"window", options_.window},
             {"min_count", options_.min_count},
             {"words", options_.most_words},
             {"lower_case", options_.lower_case},
             {"negatives", options_.negatives},
             {"epochs", options_.epochs},
             {"learning_rate", options_.learning_rate},
             {"seed", options_.seed}};
    words_.note(all);
    return all;
  }

  data::TextFileSourceOptions layout() const {
    data::TextFileSourceOptions layout;
    const format::TextFormat format =
        format_.empty() ? format::guess_text_format(input_.front()) : format::text_format_from_name(format_);
    layout.format = format;
    const bool table = format == format::TextFormat::tsv || format == format::TextFormat::csv;
    if (!table && arguments.given("header"))
      throw InputError("usage", "--header works only with TSV and CSV; the format is {}",
                       format::text_format_name(format));
    if ((format == format::TextFormat::text || format == format::TextFormat::lines) &&
        arguments.given("text-column"))
      throw InputError("usage", "--text-column works only with tables; the format is {}",
                       format::text_format_name(format));
    layout.header = table && header_;
    layout.style = written_.style();
    for (const std::string& column : columns_)
      layout.text_columns.push_back(format::column_from_text(column));
    return layout;
  }

  std::vector<fs::path> input_;
  fs::path output_;
  std::string form_ = "glove", format_;
  std::vector<std::string> columns_;
  bool header_ = true, overwrite_ = false;
  FileStyleOptions written_;
  WordOptions words_;
  augment::VectorTrainingOptions options_;
  task::StaticVectorOptions static_;
  DeviceOptions device_;
};

}  // namespace

std::unique_ptr<Command> make_vectors() {
  return std::make_unique<Vectors>();
}

}  // namespace funicular::cli
