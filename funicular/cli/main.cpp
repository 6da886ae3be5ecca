// The program `funicular`: finds the subcommand, and turns errors into messages and exit codes.

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <span>

#include "funicular/base/error.h"
#include "funicular/base/isa.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary.h"
#include "funicular/cli/arguments_help.h"
#include "funicular/cli/command_list.h"
#include "funicular/cli/commands_library.h"
#include "funicular/cli/foreign_options.h"
#include "funicular/cli/help_pages.h"
#include "funicular/cli/manual.h"
#include "funicular/cli/option_reference.h"
#include "funicular/cli/training_arguments.h"
#include "funicular/cli/version.h"
#include "funicular/launch/environment.h"

namespace funicular::cli {

namespace {

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void require_command(const std::string& name) {
  const std::vector<std::string> names = command_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  if (const std::string_view answer = answer_to_foreign_command(name); !answer.empty())
    throw InputError("usage", "there is no command \"{}\": {} (funicular --help lists the commands)", name,
                     answer);
  const std::string near = nearest(name, names.data(), names.data() + names.size());
  throw InputError("usage", "unknown {} \"{}\"{} (funicular --help lists the commands)",
                   name.rfind('-', 0) == 0 ? "option" : "command", name,
                   near.empty() ? "" : "; did you mean " + near + "?");
}

/// Several of these would each do all of the work, and write the same file.
void refuse_ranks(const std::string& command) {
  const std::vector<std::string> alone{"tokenize", "vocabulary", "mask",   "compare",
                                       "chain",    "report",     "vectors"};
  if (std::find(alone.begin(), alone.end(), command) == alone.end()) return;
  if (!launch::process_variable("FUNICULAR_LAUNCH")) return;
  if (const int ranks = launch::read_environment().size; ranks > 1)
    throw InputError("usage",
                     "funicular {} is one process with threads, found {} ranks; leave out funicular launch",
                     command, ranks);
}

/// Whether rank 0, which got the same words, says what is wrong with them. (funicular launch itself shows an error
/// once; torchrun, srun and mpirun show what every rank writes.)
bool rank_0_says_it() {
  try {
    return !launch::process_variable("FUNICULAR_LAUNCH") && launch::read_environment().rank > 0;
  } catch (const Error&) {
    return false;
  }
}

Arguments::Outcome parse(Arguments& arguments, const std::vector<std::string>& words) {
  try {
    return arguments.parse(words);
  } catch (const InputError&) {
    if (rank_0_says_it()) std::exit(static_cast<int>(ExitCode::usage));
    throw;
  }
}

/// Horovod's program is `launch`, which takes its options: as a command, or where this program is called so by a link.
constexpr std::string_view kHorovodrun = "horovodrun";

/// Pages for documents, and the help that belongs to no command.
bool is_page(std::string_view name) {
  return name == "--markdown" || name == "--man" || name == "--training-arguments" || name == "environment";
}

std::string page_of(const std::vector<std::string>& words) {
  if (words[1] == "--markdown") return option_reference();
  if (words[1] == "--training-arguments") return training_arguments_page();
  if (words[1] == "environment") return environment_help();
  if (words.size() < 3) return manual_page();
  require_command(words[2]);
  return manual_page(words[2]);
}

/// `command` keeps what was run.
int run(std::vector<std::string> words, std::unique_ptr<Command>& command) {
  if (words.empty()) {
    std::fputs(overview().c_str(), stderr);
    return static_cast<int>(ExitCode::usage);
  }
  if (words[0] == kHorovodrun) words[0] = "launch";
  const bool help = words[0] == "--help" || words[0] == "-h" || words[0] == "help";
  if (help && (words.size() == 1 || words[1] == "--help" || words[1] == "all")) return print(overview()), 0;
  if (help && is_page(words[1])) return print(page_of(words)), 0;
  if (words[0] == "--version") return print(version_text()), 0;
  const std::string& name = help ? words[1] : words[0];
  require_command(name);
  command = make_command(name);
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  const bool all = help && words.size() > 2 && words[2] == "all";
  const Arguments::Outcome asked = !help ? parse(command->arguments, rest)
                                   : all ? Arguments::Outcome::help_all
                                         : Arguments::Outcome::help;
  if (asked != Arguments::Outcome::run)
    return print(help_of(command->arguments, asked == Arguments::Outcome::help_all)), 0;
  refuse_ranks(name);
  if (is_in_library(name)) commands_library().prepare();
  return command->run();
}

/// Results that did not reach their reader are no success.
void require_output_written() {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return;
  throw RunError("output", "cannot write to standard output{}", errno ? ": " + errno_text(errno) : "");
}

/// Returns the text for an exception that is none of our Error classes.
std::string text_of(const std::exception& error) {
  const CommandsLibrary* const library = loaded_commands_library();
  return library ? library->error_text(error) : error.what();
}

bool is_out_of_memory(const std::exception& error) {
  const CommandsLibrary* const library = loaded_commands_library();
  return library ? library->is_out_of_memory(error) : dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
}

/// Returns a message that memory is short, why, and what to do.
std::string memory_text(const std::string& reason, std::string_view command = "") {
  rlimit limit{};
  const bool limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return fmt::format(
      "[memory] out of memory{}; try a smaller {} ({})",
      limited ? fmt::format(": this process may have {} MB (ulimit -v), and needs more", limit.rlim_cur >> 20)
              : "",
      command == "vocabulary" ? "--max-words" : "--micro-batch-tokens or --micro-batch-size", reason);
}

/// For exceptions that nothing catches, of threads and of libraries while they are loaded: a message and exit code 1,
/// where the process would abort.
[[noreturn]] void end_by_uncaught_exception() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
    log::error("[internal] ended without a reason");
  } catch (const std::bad_alloc& error) {
    log::error("{}", memory_text(error.what()));
  } catch (const std::exception& error) {
    log::error("[internal] {}", error.what());
  } catch (...) {
    log::error("[internal] an unknown error");
  }
  std::_Exit(static_cast<int>(ExitCode::failed));
}

int guarded(const std::vector<std::string>& words) {
  // Outlives the message of an error: ending the connections to a rank that hangs takes seconds, in which a
  // launcher may kill this one.
  std::unique_ptr<Command> command;
  try {
    log::check_environment();
    check_isa_environment();
    const int code = run(words, command);
    require_output_written();
    return code;
  } catch (const Error& error) {
    log::error("{}", error.what());
    return static_cast<int>(error.code());
  } catch (const std::filesystem::filesystem_error& error) {
    log::error("[file] {}: {}", error.path1().string(), error.code().message());
    return static_cast<int>(ExitCode::usage);
  } catch (const std::exception& error) {
    if (is_out_of_memory(error))
      log::error("{}", memory_text(text_of(error), words.empty() ? "" : words.front()));
    else
      log::error("[internal] {}", text_of(error));
  }
  return static_cast<int>(ExitCode::failed);
}

/// The memory of this process's command line, which ps shows.
std::span<char> command_line;

int start(const std::vector<std::string>& words) {
  // A closed pipe, or a file beyond its limit, is a write error with a message, not a silent death.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::set_terminate(end_by_uncaught_exception);
  // The ranks of funicular launch leave the message to it.
  end_on_signals(/*quiet=*/launch::process_variable("FUNICULAR_LAUNCH").has_value());
  return guarded(words);
}

}  // namespace

int run_as(const std::vector<std::string>& arguments) {
  std::string shown;
  for (const std::string& word : arguments) shown.append(word).push_back('\0');
  if (shown.size() <= command_line.size()) {
    std::fill(command_line.begin(), command_line.end(), '\0');
    std::copy(shown.begin(), shown.end(), command_line.begin());
  }
  return start({arguments.begin() + 1, arguments.end()});
}

}  // namespace funicular::cli

namespace {

/// Ends the process without the destructors of static objects: LibTorch's table of operators alone takes a tenth of
/// a second to destroy. Flushes all files first. Leak checkers need the ordinary end.
[[noreturn]] void end_at_once(int code) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::exit(code);
#else
  std::fflush(nullptr);
  std::_Exit(code);
#endif
}

}  // namespace

int main(int count, char** words) {
  funicular::cli::command_line = {words[0], words[count - 1] + std::strlen(words[count - 1]) + 1};
  const bool horovodrun = std::filesystem::path(words[0]).filename() == funicular::cli::kHorovodrun;
  std::vector<std::string> arguments(words + 1, words + count);
  if (horovodrun) arguments.insert(arguments.begin(), std::string(funicular::cli::kHorovodrun));
  end_at_once(funicular::cli::start(arguments));
}
