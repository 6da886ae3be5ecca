// funicular report: runs, evaluations and chains as one page.

#include <fmt/format.h>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/log.h"
#include "funicular/cli/command.h"
#include "funicular/cli/output_paths.h"
#include "funicular/report/page.h"

namespace funicular::cli {

namespace {

class Report final : public Command {
 public:
  Report()
      : Command("report",
                "Writes one HTML page that needs no network. For each run it shows curves of losses, "
                "metrics, learning rate, speed and memory, and where the run comes from. It compares the "
                "evaluated models and shows confusion matrices and wrong predictions. Prints the comparison "
                "of the models as text.") {
    arguments.example("compare two runs", "funicular report --input runs/a runs/b --output report.html");
    arguments.example("show an evaluation's mistakes",
                      "funicular report --input results --output results.html");
    arguments
        .add("input", "FOLDER", inputs_, Effect::input,
             "folders of runs, of evaluations (evaluate --output), or of a chain's state, which stands for "
             "all that the chain has made")
        .required();
    arguments.add("output", "FILE", output_, Effect::output, "the page, an HTML file").required();
    arguments.add("title", "TEXT", title_, Effect::result, "its heading");
  }

  int run() override {
    require_parent_folder(output_, "--output");
    require_ending(output_, "--output", {"html", "htm"});
    refuse_to_replace_what_is_no_page();
    const report::ReportFiles files = report::read_files(inputs_);
    write_file_atomically(output_, report::render_page(files, title_));
    fmt::print("{}", report::render_table(files));
    log::info("{}: {} runs, {} evaluations{}", output_.string(), files.runs.size(), files.evaluations.size(),
              report::chart_library().script.empty() ? "" : "; charts by uPlot");
    return 0;
  }

 private:
  void refuse_to_replace_what_is_no_page() const {
    if (!fs::is_regular_file(output_)) return;
    const MappedFile there(output_);
    if (there.text().empty() || report::is_page(there.text())) return;
    throw InputError("usage",
                     "--output {}: there is a file already, and it is no page of funicular report; choose "
                     "another name",
                     output_.string());
  }

  std::vector<fs::path> inputs_;
  fs::path output_ = "report.html";
  std::string title_ = "Report";
};

}  // namespace

std::unique_ptr<Command> make_report() {
  return std::make_unique<Report>();
}

}  // namespace funicular::cli
