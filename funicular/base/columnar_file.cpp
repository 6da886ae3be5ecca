#include "funicular/base/columnar_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"

namespace funicular {

namespace {

constexpr int kNoPyarrow = 3, kNoSpace = 4;  ///< exit codes of the script

/// Reads the file on standard input. Its argument is the process that started it: the script ends soon after that process.
constexpr const char* kScript = R"(
import sys
sys.path = [folder for folder in sys.path if folder]  # not the folder in which the command runs
import errno, json, math, os
try:
    import pyarrow, pyarrow.feather, pyarrow.ipc, pyarrow.parquet
except ImportError:
    sys.exit(3)

def batches(file):
    begin = os.pread(0, 8, 0)
    if begin.startswith(b"PAR1"):
        yield from pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=4096)
    elif begin.startswith(b"ARROW1"):
        reader = pyarrow.ipc.open_file(file)
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    elif begin.startswith(b"FEA1"):
        yield from pyarrow.feather.read_table(file).to_batches()
    else:
        yield from pyarrow.ipc.open_stream(file)

def in_microseconds(column):
    kind = column.type
    if getattr(kind, "unit", None) != "ns":
        return column
    if pyarrow.types.is_timestamp(kind):
        return column.cast(pyarrow.timestamp("us", kind.tz), safe=False)
    return column.cast(pyarrow.duration("us") if pyarrow.types.is_duration(kind) else pyarrow.time64("us"), safe=False)

def plain(value):
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return str(value)

def write(out):
    with pyarrow.memory_map("/proc/self/fd/0") as file:
        for batch in batches(file):
            names = batch.schema.names
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                raise ValueError(f"two columns have the name {twice[0]!r}; give each column its own")
            kept = [name for name in names if not name.startswith("__index_level_")]  # pandas' row numbers
            columns = [in_microseconds(batch.column(name)).to_pylist() for name in kept]
            for row in zip(*columns):
                out.write(json.dumps(dict(zip(kept, map(plain, row))), ensure_ascii=False) + "\n")
            if os.getppid() != int(sys.argv[1]):
                os._exit(1)

try:
    with open(1, "w", encoding="utf-8", newline="\n", buffering=1 << 20) as out:
        write(out)
except BaseException as error:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    print(" ".join(f"{type(error).__name__}: {error}".split()), file=sys.stderr)
    sys.stderr.flush()
    os._exit(4 if full else 1)
)";

struct OpenFile {
  int value = -1;
  explicit OpenFile(int opened) : value(opened) {}
  ~OpenFile() { close(); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  void close() {
    if (value >= 0) ::close(value);
    value = -1;
  }
};

std::string reading_python() {
  const char* const named = std::getenv("FUNICULAR_PYTHON");
  return named && *named ? named : "python3";
}

/// Starts the script; -1: there is no such program.
pid_t start_reader(const std::string& program, int input, int output, int messages) {
  std::string parent = std::to_string(::getpid());
  const auto word = [](const char* text) { return const_cast<char*>(text); };
  std::array<char*, 6> words{word(program.c_str()), word("-Wignore"), word("-c"),
                             word(kScript),         parent.data(),    nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, messages, STDERR_FILENO);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, program.c_str(), &actions, nullptr, words.data(), ::environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? child : -1;
}

/// Reads what the child writes until its end. An interrupt ends the child.
std::string messages_of(pid_t child, int messages) {
  constexpr int kMilliseconds = 100;
  constexpr size_t kLongest = 2000;
  std::string text;
  std::array<char, 512> piece{};
  for (;;) {
    if (interrupt_requested() != 0) ::kill(child, SIGKILL);
    pollfd waited{messages, POLLIN, 0};
    if (::poll(&waited, 1, kMilliseconds) <= 0) continue;  // a signal may have ended the wait
    const ssize_t count = ::read(messages, piece.data(), piece.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return text;
    text.append(piece.data(),
                std::min(static_cast<size_t>(count), kLongest - std::min(kLongest, text.size())));
  }
}

int status_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

}  // namespace

bool has_columnar_name(const fs::path& name) {
  std::string ending = name.extension().string();
  for (char& c : ending)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return ending == ".parquet" || ending == ".arrow" || ending == ".feather";
}

bool write_json_lines(const fs::path& file, const std::string& name, int output) {
  const OpenFile input(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (input.value < 0) throw InputError("file", "cannot read {}: {}", name, errno_text(errno));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw RunError("file", "no pipe to the Python that reads {}: {}", name, errno_text(errno));
  OpenFile read_end(ends[0]), write_end(ends[1]);
  const std::string program = reading_python();
  const pid_t child = start_reader(program, input.value, output, write_end.value);
  write_end.close();
  if (child < 0) return false;
  std::string messages = messages_of(child, read_end.value);
  const int status = status_of(child);
  stop_if_interrupted("file", name + " was being read, and no more was done");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  if (WIFEXITED(status) && (WEXITSTATUS(status) == kNoPyarrow || WEXITSTATUS(status) == 127)) return false;
  while (!messages.empty() && messages.back() == '\n') messages.pop_back();
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoSpace)
    throw RunError("file", "{}: its rows do not fit into the folder for temporary files, TMPDIR: {}", name,
                   messages);
  if (WIFSIGNALED(status)) messages = fmt::format("{} was ended by signal {}", program, WTERMSIG(status));
  throw InputError("file", "{}: pyarrow cannot read it as a table: {}", name, messages);
}

}  // namespace funicular
