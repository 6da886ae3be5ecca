#include "funicular/cli/chain_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/format/model_config.h"
#include "funicular/format/text_format.h"

namespace funicular::cli {

namespace {

constexpr const char* kLlmLabels = "llm-labels";

std::string quoted(const std::string& text) {
  std::string found = "\"";
  for (const char c : text) found += c == '"' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
  return found + "\"";
}

std::string list_of(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const std::string& text : texts) all.push_back(quoted(text));
  return fmt::format("[{}]", fmt::join(all, ", "));
}

std::string path_of(const fs::path& path) {
  return quoted(fs::absolute(path).lexically_normal().string());
}

}  // namespace

void ChainTemplate::declare(Arguments& arguments) {
  arguments
      .add("template", "NAME", name, Effect::result,
           "instead of FILE: write a chain into --output and run it. llm-labels: from rows with shares to a "
           "small "
           "calibrated model")
      .choices({kLlmLabels})
      .default_text("none");
  arguments.add("model", "DIR", model, Effect::input, "with --template: the pre-trained model")
      .takes_model()
      .default_text("none");
  arguments.add("rows", "FILE", rows, Effect::input, "with --template: rows with shares")
      .default_text("none");
  arguments
      .add("eval", "FILE", eval, Effect::input,
           "with --template: rows with a label, by which models are chosen and the student is calibrated")
      .default_text("none");
  arguments.add("test", "FILE", test, Effect::input, "with --template: rows with a label, for the tests")
      .default_text("none");
  arguments.add("output", "DIR", output, Effect::output, "with --template: folder for all that is made")
      .default_text("none");
  arguments.add("text-column", "COLUMN", text, Effect::result, "with --template: the columns of the text")
      .default_text("text");
  arguments
      .add("soft-columns", "COLUMN", soft_columns, Effect::result,
           "with --template: the columns of the shares, as for finetune")
      .default_text("p_*; of JSON lines the key of the objects, shares");
  arguments.add("label-column", "COLUMN", label, Effect::result,
                "with --template: the label of --eval and --test");
}

fs::path ChainTemplate::write() const {
  const std::pair<const char*, const fs::path*> needed[] = {
      {"model", &model}, {"rows", &rows}, {"eval", &eval}, {"test", &test}, {"output", &output}};
  for (const auto& [option, path] : needed)
    if (path->empty()) throw InputError("usage", "--template {} expects --{}", name, option);
  make_directories(output);
  const fs::path file = output / "chain.toml";
  const std::string text = chain();
  if (fs::exists(file) && read_file(file) != text)
    throw InputError(
        "usage",
        "{} is there and differs from what --template would write. To run it as it is: funicular "
        "chain {}. To start again, give another --output",
        file.string(), file.string());
  write_file_atomically(file, text);
  log::info("{} has the steps; edit it and run it again with funicular chain {}", file.string(),
            file.string());
  return file;
}

std::string ChainTemplate::chain() const {
  const int64_t layers = format::read_model_config(model).encoder.layers,
                few = std::max<int64_t>(1, layers / 2);
  const bool lines = format::guess_text_format(rows) == format::TextFormat::jsonl;
  const std::string texts =
      fmt::format("text-column = {}\n", list_of(text.empty() ? std::vector<std::string>{"text"} : text));
  const std::string shares =
      lines ? fmt::format("soft-labels = true\nlabel-column = {}\n",
                          quoted(soft_columns.empty() ? "shares" : soft_columns.front()))
            : fmt::format("soft-columns = {}\n",
                          list_of(soft_columns.empty() ? std::vector<std::string>{"p_*"} : soft_columns));
  const std::string labels = fmt::format("label-column = {}\n", quoted(label));
  const std::string training = "batch-size = 32\nlearning-rate = 1e-4\nwarmup-ratio = 0.1\nsave-steps = 0\n";
  const std::string eval_file = fmt::format("eval = {}\n", path_of(eval));
  std::string chain = fmt::format(
      "# From rows with shares to a small model: funicular chain --template {}. Edit it as you like.\n\n",
      kLlmLabels);
  chain += fmt::format(
      "# Learns the shares. The best model is chosen by rows that people have labelled.\n"
      "[teacher]\ncommand = \"finetune\"\nmodel = {}\ntask = \"custom\"\ntrain = {}\n{}{}{}"
      "eval-label-column = {}\nnum-train-epochs = 3\n{}output = \"teacher\"\n\n",
      path_of(model), path_of(rows), texts, shares, eval_file, quoted(label), training);
  chain += fmt::format("# Has {} of {} layers. Learns the teacher's answers.\n", few, layers);
  chain +=
      fmt::format("[student]\ncommand = \"distill\"\nstage = \"prediction\"\nteacher = \"teacher/model\"\n");
  chain += fmt::format("student = \"{}-layer{}\"\ninit-layers = \"even\"\n", few, few == 1 ? "" : "s");
  chain += fmt::format("task = \"custom\"\ntrain = {}\n{}{}{}", path_of(rows), texts, labels, eval_file);
  chain += "terms = [\"soft\"]\nsoft-mean = \"rows\"\ntemperature = 2.0\ncache-teacher = \"answers\"\n";
  chain += fmt::format("num-train-epochs = 4\n{}output = \"student\"\n\n", training);
  const auto evaluated = [&](const char* step, const char* of, const fs::path& input,
                             const std::string& more) {
    return fmt::format(
        "[{}]\ncommand = \"evaluate\"\nmodel = \"{}\"\ntask = \"custom\"\ninput = {}\n{}{}{}\n", step, of,
        path_of(input), texts, labels, more);
  };
  chain += "# The student with a temperature that makes its probabilities honest.\n" +
           evaluated("calibrated", "student/model", eval, "calibrate = true\ncalibrated = \"model\"\n");
  chain += "# In 8-bit products, as predict --precision int8 computes.\n" +
           evaluated("test", "model", test, "precision = \"int8\"\noutput = \"tested/student\"\n");
  chain += evaluated("test-teacher", "teacher/model", test, "output = \"tested/teacher\"\n");
  chain +=
      "[page]\ncommand = \"report\"\ninput = [\"tested/student\", \"tested/teacher\", \"student\", "
      "\"teacher\"]\n"
      "output = \"report.html\"\ntitle = \"A small model from soft labels\"\n";
  return chain;
}

void ChainTemplate::show_abstention() const {
  const fs::path file = output / "tested" / "student" / "evaluation.json";
  const Json found = read_json(file);
  const Json& points = found.at("reliability").at("coverage");
  std::string table = "coverage\taccuracy\tthreshold\n";
  log::info("{:>10}{:>10}{:>11}", "coverage", "accuracy", "threshold");
  for (const double wanted : {1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5}) {
    const Json* nearest = nullptr;
    for (const Json& point : points)
      if (!nearest || std::abs(point.at("coverage").get<double>() - wanted) <
                          std::abs(nearest->at("coverage").get<double>() - wanted))
        nearest = &point;
    if (!nearest) break;
    const auto value = [&](const char* key) { return nearest->at(key).get<double>(); };
    log::info("{:>10.3f}{:>10.4f}{:>11.4f}", value("coverage"), value("accuracy"), value("threshold"));
    table +=
        fmt::format("{:.4f}\t{:.4f}\t{:.4f}\n", value("coverage"), value("accuracy"), value("threshold"));
  }
  write_file_atomically(output / "abstention.tsv", table);
  log::info("the model is in {}; predict --abstain THRESHOLD leaves the least certain rows without a label",
            (output / "model").string());
}

}  // namespace funicular::cli
