#include "funicular/train/records.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/file.h>
#include <torch/version.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <thread>

#include "funicular/base/error.h"
#include "funicular/base/isa.h"
#include "funicular/base/json_text.h"
#include "funicular/base/version.h"
#include "funicular/format/tensorboard.h"
#include "funicular/train/trainer.h"

namespace funicular::train {

namespace {

bool is_evaluation(const Json& line) {
  for (const auto& [name, value] : line.items())
    if (name.starts_with("eval_")) return true;
  return false;
}

/// Records up to `step` and evaluations up to `evaluated_step`; a torn line (a kill while it was written) is
/// dropped.
std::string lines_up_to(const fs::path& path, int64_t step, int64_t evaluated_step) {
  std::string kept;
  if (!fs::exists(path)) return kept;
  const std::string text = read_file(path);
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const Json line = parse_json_or_null(std::string_view(text).substr(begin, end - begin));
    if (!line.contains("step") || !line["step"].is_number_integer()) continue;
    const auto of_step = line["step"].get<int64_t>();
    if (of_step <= (is_evaluation(line) ? evaluated_step : step)) kept.append(text, begin, end + 1 - begin);
  }
  return kept;
}

int open_to_write(const fs::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor < 0) throw write_error(path, errno);
  return descriptor;
}

/// 0, or the errno value of what the system says against a lock of its own for this open file. Some file
/// systems over a network know only the second kind of lock.
int try_to_lock(int descriptor) {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != ENOSYS && errno != EOPNOTSUPP && errno != EINVAL) return errno;
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (::fcntl(descriptor, F_OFD_SETLK, &whole) == 0) return 0;
    return errno == EAGAIN || errno == EACCES ? EWOULDBLOCK : errno;
  }
  return 0;
}

}  // namespace

Records::Records(const fs::path& folder, int64_t step, int64_t evaluated_step)
    : path_(folder / "metrics.jsonl") {
  write_file_atomically(path_, lines_up_to(path_, step, evaluated_step));
  descriptor_ = open_to_write(path_, O_WRONLY | O_APPEND);
  events_ = std::make_unique<format::EventWriter>(folder);
}

Records::~Records() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Records::append(const OrderedJson& line) {
  const std::string text = json_text(line) + "\n";
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(descriptor_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw write_error(path_, errno);
    done += static_cast<size_t>(count);
  }
}

void Records::add(const StepRecord& record) {
  OrderedJson line = {{"step", record.step},
                      {"epoch", record.epoch},
                      {"loss", record.loss},
                      {"learning_rate", record.learning_rate},
                      {"gradient_norm", record.gradient_norm},
                      {"tokens_per_second", record.tokens_per_second},
                      {"step_seconds", record.step_seconds},
                      {"wait_share", record.wait_share},
                      {"memory_bytes", record.memory_bytes}};
  if (record.losses.size() > 1)
    for (const auto& [name, loss] : record.losses) line["loss_" + name] = loss;
  if (record.loss_scale > 0) {
    line["loss_scale"] = record.loss_scale;
    line["skipped_steps"] = record.skipped_steps;
    events_->scalar("train/loss_scale", record.loss_scale, record.step);
  }
  append(line);
  events_->scalar("train/loss", record.loss, record.step);
  events_->scalar("train/learning_rate", record.learning_rate, record.step);
  events_->scalar("train/gradient_norm", record.gradient_norm, record.step);
  events_->scalar("train/tokens_per_second", record.tokens_per_second, record.step);
  if (record.losses.size() > 1)
    for (const auto& [name, loss] : record.losses) events_->scalar("train/loss/" + name, loss, record.step);
  events_->flush();
}

void Records::add_evaluation(int64_t step, double epoch, const std::map<std::string, double>& metrics) {
  OrderedJson line = {{"step", step}, {"epoch", epoch}};
  for (const auto& [name, value] : metrics) {
    line["eval_" + name] = value;
    events_->scalar("eval/" + name, value, step);
  }
  append(line);
  events_->flush();
}

void Records::sync() {
  if (::fsync(descriptor_) != 0) throw write_error(path_, errno);
}

RunLock::RunLock(const fs::path& folder) {
  const fs::path path = folder / ".lock";
  descriptor_ = open_to_write(path, O_RDWR | O_CREAT);
  const int error = try_to_lock(descriptor_);
  if (error == 0) return;
  ::close(descriptor_);
  if (error == EWOULDBLOCK)
    throw InputError("trainer", "another process is training into {}; wait for it or choose another folder",
                     folder.string());
  throw RunError(
      "trainer",
      "cannot lock {}: {}. Without the lock two runs could write into one folder; choose a folder on "
      "a file system that has locks",
      path.string(), errno_text(error));
}

RunLock::~RunLock() {
  ::close(descriptor_);
}

OrderedJson describe_environment() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return {{"funicular", FUNICULAR_VERSION},
          {"libtorch", TORCH_VERSION},
          {"compiler", __VERSION__},
          {"host", host},
          {"processors", std::thread::hardware_concurrency()},
          {"threads", at::get_num_threads()},
          {"instruction_set", processor_isa_name()}};
}

int64_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) return 0;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace funicular::train
