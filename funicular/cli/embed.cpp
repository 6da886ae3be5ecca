// funicular embed: texts in, vectors out.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/base/made_record.h"
#include "funicular/cli/command.h"
#include "funicular/cli/embedding_options.h"
#include "funicular/cli/file_style.h"
#include "funicular/cli/options.h"
#include "funicular/cli/output_paths.h"
#include "funicular/cli/sharing_ranks.h"
#include "funicular/comm/together.h"
#include "funicular/task/embed.h"
#include "funicular/task/vector_output.h"

namespace funicular::cli {

namespace {

class Embed final : public Command {
 public:
  Embed()
      : Command("embed",
                "Writes a vector for each text. Reads folders of sentence-transformers, of both forms, and "
                "folders of "
                "an encoder alone. To resume an interrupted run, repeat the command. Under funicular launch "
                "the ranks "
                "share the rows of a file: the same vectors, sooner.") {
    arguments.example("embed the lines of a file",
                      "funicular embed --model MODEL --input lines.txt --output vectors.npy");
    arguments.example(
        "embed queries with the model's prompt for them",
        "funicular embed --model MODEL --input queries.jsonl --role query --output queries.npy");
    arguments.section("Input and output");
    declare_model(arguments, model_, "folder of a sentence encoder");
    arguments.add("input", "FILE", input_.path, Effect::input, "the texts: lines, TSV, CSV or JSON lines")
        .required();
    arguments
        .add("output", "FILE", output_, Effect::output,
             "file for the vectors: .npy, or .jsonl with {\"embedding\": […]} for each text. It appears when "
             "it is "
             "complete")
        .required();
    arguments.add("overwrite", overwrite_, Effect::none, "replace the file of --output if there is one");
    arguments
        .add("format", "NAME", input_.format, Effect::result,
             "lines: a text per line; tsv, csv, jsonl: rows with a column of texts")
        .choices({"lines", "tsv", "csv", "jsonl"})
        .default_text("by the file's name");
    arguments
        .add("text-column", "COLUMN", input_.text, Effect::result,
             "column of the texts in a table; several columns are joined into one text")
        .alias("text-columns")
        .default_text("text");
    arguments
        .add("header", header_, Effect::result,
             "the first row of TSV and CSV names the columns; --no-header: it is data")
        .default_text("on");
    written_.declare(arguments);
    embedding_.declare(arguments);
    arguments
        .add("vector-type", "NAME", code_, format::vector_code_names(), Effect::result,
             "numbers of the output: int8 and uint8 take one byte, binary and ubinary one bit per number")
        .common();
    arguments
        .add("ranges", "FILE", ranges_, Effect::input,
             "smallest and largest number of each dimension, for int8 and uint8, as an earlier embed wrote "
             "them "
             "to OUTPUT.ranges.npy")
        .default_text("taken from the vectors");
    arguments.section("Machine");
    embedding_.declare_machine(arguments);
    embedding_.declare_sharing(arguments);
    embedding_.declare_graphs(arguments);
  }

  int run() override {
    check_paths();
    comm::Group group = embedding_.join();
    const Json made_of = identity();
    if (const Json done = counts_if_made_of(output_, made_of); !done.is_null()) {
      log::info("{} is complete already", output_.string());
      if (group.rank() == 0) fmt::print("{}\n", done.dump());
      return 0;
    }
    comm::together(group, [&] {
      if (group.rank() == 0) require_new_file(output_, "--output", overwrite_);
    });
    const task::Embedder embedder(model_, embedding_.options());
    const bool chosen = !embedder.encoder().has_modules() && !arguments.given("pooling");
    log::info("a text's vector: {}{}{}", embedder.description(), embedding_.prompt_text(embedder),
              chosen ? "; the folder has no modules.json, and --pooling was not given" : "");
    write_vectors(embedder, group, made_of);
    return 0;
  }

 private:
  void check_paths() {
    require_parent_folder(output_, "--output");
    const std::string ending = require_ending(output_, "--output", {"npy", "jsonl", "ndjson"});
    form_ = ending == "npy" || ending.empty() ? task::VectorForm::npy : task::VectorForm::json_lines;
    const bool ranged = code_ == format::VectorCode::int8 || code_ == format::VectorCode::uint8;
    if (!ranges_.empty() && !ranged)
      throw InputError("usage", "--ranges works only with --vector-type int8 or uint8");
    std::error_code none;
    if (!fs::is_directory(model_, none)) model::require_folder(model_, "--model");
    for (const fs::path& read : {input_.path, ranges_})
      if (!read.empty() && fs::equivalent(read, output_, none))
        throw InputError("usage", "{} would be replaced by the vectors; choose another --output",
                         read.string());
    if (!fs::is_regular_file(input_.path, none))
      throw InputError("usage", "--input {}: {}", input_.path.string(),
                       fs::exists(input_.path, none)
                           ? "expected a regular file, which can be read again to resume"
                           : "no such file");
  }

  /// Everything that decides the file.
  Json identity() const {
    Json all{{"version", 1}, {"input", hash_text(hash_file(input_.path))}, {"model", hash_of_output(model_)}};
    if (!ranges_.empty()) all["ranges"] = hash_text(hash_file(ranges_));
    for (const auto& [name, value] : deciding_options(arguments)) all[name] = value;
    all["precision"] = embedding_.options().precision;
    all["form"] = ending_of(output_);
    return all;
  }

  void write_vectors(const task::Embedder& embedder, const comm::Group& group, const Json& made_of) {
    std::optional<task::VectorOutput> out;
    const std::string done = comm::from_first(group, [&] {
      out.emplace(task::VectorOutputOptions{
          .path = output_,
          .form = form_,
          .code = code_,
          .ranges = ranges_.empty() ? format::VectorRanges{} : task::read_ranges(ranges_),
          .width = embedder.width(),
          .identity = made_of});
      return std::to_string(out->rows());
    });
    task::EmbedOptions options{
        .input = input_, .skip = std::stoll(done), .group = group, .identity = deciding_options(arguments)};
    if (arguments.given("header")) options.input.header = header_;
    options.input.style = written_.style();
    task::embed(embedder, options, [&](std::string_view records) { out->write(records); });
    comm::together(group, [&] {
      if (!out) return;
      const Json counts{{"vectors", out->rows()}, {"width", embedder.width()}};
      out->finish(
          [&](const fs::path& file) { write_made_record(output_, hash_of_output(file), made_of, counts); });
      fmt::print("{}\n", counts.dump());
    });
  }

  fs::path model_, output_, ranges_;
  task::InputOptions input_;
  task::VectorForm form_ = task::VectorForm::npy;
  format::VectorCode code_ = format::VectorCode::float32;
  bool header_ = true, overwrite_ = false;
  FileStyleOptions written_;
  EmbeddingOptions embedding_;
};

}  // namespace

std::unique_ptr<Command> make_embed() {
  return std::make_unique<Embed>();
}

}  // namespace funicular::cli
