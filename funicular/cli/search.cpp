// funicular search: the nearest vectors of queries.

#include <fmt/format.h>
#include <torch/types.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/base/mapped_text.h"
#include "funicular/cli/answer_output.h"
#include "funicular/cli/command.h"
#include "funicular/cli/embedding_options.h"
#include "funicular/cli/file_style.h"
#include "funicular/cli/output_paths.h"
#include "funicular/launch/environment.h"
#include "funicular/task/nearest.h"
#include "funicular/task/vector_output.h"

namespace funicular::cli {

namespace {

/// The lines of a file: an id for each vector.
std::vector<std::string> read_ids(const fs::path& file, int64_t rows) {
  std::vector<std::string> ids;
  const MappedText text(file);
  std::string_view rest = text.content();
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ids.emplace_back(line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (std::ssize(ids) != rows)
    throw InputError("usage", "--ids {}: expected a line for each of the {} vectors, found {}", file.string(),
                     rows, ids.size());
  return ids;
}

class Search final : public Command {
 public:
  Search()
      : Command("search",
                "Finds the vectors of an index that are nearest to each query. The search is exact: it "
                "compares each "
                "query with each vector. Writes a JSON object per query: the rows of the index, counted from "
                "0, and "
                "their scores, the nearest first.") {
    arguments.example("search with texts",
                      "funicular search --index vectors.npy --queries questions.txt --model MODEL -k 5");
    arguments.example("search with vectors", "funicular search --index vectors.npy --queries queries.npy");
    arguments.section("Input and output");
    arguments
        .add("index", "FILE", index_, Effect::input,
             "the vectors, as funicular embed or numpy wrote them (.npy)")
        .required();
    arguments
        .add("queries", "FILE", input_.path, Effect::input,
             "vectors (.npy), or texts: lines, TSV, CSV or JSON lines")
        .required();
    arguments.add("model", "DIR", model_, Effect::input, "folder of the sentence encoder that embeds texts")
        .takes_model()
        .default_text("none: the queries are vectors");
    arguments.add("neighbours", "K", k_, Effect::result, "nearest vectors per query")
        .letter('k')
        .alias("neighbors")
        .alias("top-k")
        .common()
        .range(1, 1 << 20);
    arguments
        .add("similarity", "NAME", similarity_, Effect::result,
             "similarity of two vectors; a greater value is nearer")
        .choices(task::similarity_names())
        .common()
        .default_text("as the model says, else cosine");
    arguments
        .add("ids", "FILE", ids_, Effect::input,
             "a line for each vector of the index: its name in the output")
        .default_text("rows by number");
    arguments
        .add("ranges", "FILE", ranges_, Effect::input,
             "smallest and largest number of each dimension of an int8 or uint8 index")
        .default_text("INDEX.ranges.npy");
    arguments
        .add("output", "FILE", output_, Effect::output,
             "file for the results, as JSON lines; appears when it is complete")
        .common()
        .default_text("standard output");
    arguments.add("overwrite", overwrite_, Effect::none, "replace the file of --output if there is one");
    arguments
        .add("format", "NAME", input_.format, Effect::result, "format of the texts: lines, tsv, csv or jsonl")
        .choices({"lines", "tsv", "csv", "jsonl"})
        .default_text("by the file's name");
    arguments.add("text-column", "COLUMN", input_.text, Effect::result, "column of the texts in a table")
        .alias("text-columns")
        .default_text("text");
    written_.declare(arguments);
    embedding_.declare(arguments);
    arguments.section("Machine");
    embedding_.declare_machine(arguments);
  }

  int run() override {
    if (launch::read_environment().size > 1)
      throw InputError("usage", "search runs in one process; leave out funicular launch");
    require_parent_folder(output_, "--output");
    require_ending(output_, "--output", {"jsonl", "ndjson"});
    require_new_file(output_, "--output", overwrite_);
    embedding_.join();
    const InterruptGuard guard;
    const format::NpyFile index(index_);
    const std::vector<std::string> ids =
        ids_.empty() ? std::vector<std::string>() : read_ids(ids_, index.rows());
    const at::Tensor queries = this->queries();
    const auto found =
        task::nearest_in_file(index, queries, k_, task::parse_similarity(similarity_), ranges(index));
    write(found, ids);
    return 0;
  }

 private:
  at::Tensor queries() {
    if (ending_of(input_.path) == "npy") return stored_queries();
    if (model_.empty())
      throw InputError("usage", "--queries {}: texts need the model that embeds them; give --model DIR",
                       input_.path.string());
    const task::Embedder embedder(model_, embedding_.options());
    if (similarity_.empty()) similarity_ = embedder.encoder().modules().similarity;
    std::vector<float> numbers;
    task::EmbedOptions options{.input = input_};
    options.input.style = written_.style();
    task::embed(embedder, options, [&](std::string_view records) {
      const size_t before = numbers.size();
      numbers.resize(before + records.size() / sizeof(float));
      std::memcpy(numbers.data() + before, records.data(), records.size());
    });
    return at::tensor(numbers).view({-1, embedder.width()});
  }

  at::Tensor stored_queries() const {
    const format::NpyFile file(input_.path);
    if (file.type() != format::NpyType::float32)
      throw InputError("usage", "--queries {}: expected vectors of float32; embed them without --vector-type",
                       input_.path.string());
    const at::Tensor queries = at::empty({file.rows(), file.columns()}, at::kFloat);
    std::memcpy(queries.data_ptr<float>(), file.data().data(), file.data().size());
    return queries;
  }

  format::VectorRanges ranges(const format::NpyFile& index) const {
    if (!ranges_.empty()) return task::read_ranges(ranges_);
    const fs::path beside = task::VectorOutput::ranges_of(index_);
    const bool bytes = index.type() != format::NpyType::float32;
    return bytes && fs::exists(beside) ? task::read_ranges(beside) : format::VectorRanges{};
  }

  void write(const std::vector<std::vector<task::Neighbour>>& found,
             const std::vector<std::string>& ids) const {
    AnswerOutput out(output_);
    for (size_t query = 0; query < found.size(); ++query) {
      std::string line = fmt::format("{{\"query\": {}, \"neighbours\": [", query);
      const char* between = "";
      for (const task::Neighbour& one : found[query]) {
        const std::string name =
            ids.empty() ? ""
                        : fmt::format("\"id\": {}, ", json_text(Json(ids[static_cast<size_t>(one.row)])));
        line += fmt::format("{}{{{}\"row\": {}, \"score\": {:.7g}}}", std::exchange(between, ", "), name,
                            one.row, one.score);
      }
      out.write(line + "]}\n");
    }
    out.finish();
  }

  fs::path index_, model_, ids_, ranges_, output_;
  task::InputOptions input_;
  int64_t k_ = 10;
  std::string similarity_;
  bool overwrite_ = false;
  FileStyleOptions written_;
  EmbeddingOptions embedding_;
};

}  // namespace

std::unique_ptr<Command> make_search() {
  return std::make_unique<Search>();
}

}  // namespace funicular::cli
