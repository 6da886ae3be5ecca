#include "funicular/task/vector_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary.h"
#include "funicular/format/npy.h"

namespace funicular::task {

namespace {

constexpr const char *kVectorJob = "job.json", *kVectorPart = "vectors.npy";

/// Replaces the header of a file that has been written. Throws RunError.
void put_header(const fs::path& file, const std::string& header) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) throw write_error(file, errno);
  const ssize_t count = ::pwrite(descriptor, header.data(), header.size(), 0);
  const int error = errno;
  const bool synced = ::fsync(descriptor) == 0;
  ::close(descriptor);
  if (count != std::ssize(header) || !synced) throw write_error(file, error);
}

/// Calls use(vector) for each row of a table of float32.
template <class Use>
void for_each_vector(const format::NpyFile& table, const Use& use) {
  std::vector<float> vector(static_cast<size_t>(table.columns()));
  for (int64_t row = 0; row < table.rows(); ++row) {
    if (row % 4096 == 0) stop_if_interrupted("embed", "the vectors are kept; repeat the command to resume");
    std::memcpy(vector.data(), table.row(row).data(), table.row(row).size());
    use(std::span<const float>(vector));
  }
}

/// {"embedding": [0.1, …]}
void append_json(format::VectorCode code, std::span<const float> vector, const format::VectorRanges& ranges,
                 std::string& out) {
  using format::VectorCode;
  out += "{\"embedding\": [";
  const char* between = "";
  if (code == VectorCode::float32) {
    for (const float number : vector)
      fmt::format_to(std::back_inserter(out), "{}{}", std::exchange(between, ", "), number);
  } else {
    std::string bytes;
    append_code(code, vector, ranges, bytes);
    const bool is_signed = code == VectorCode::int8 || code == VectorCode::binary;
    for (const char byte : bytes)
      fmt::format_to(std::back_inserter(out), "{}{}", std::exchange(between, ", "),
                     is_signed ? static_cast<int>(static_cast<signed char>(byte))
                               : static_cast<int>(static_cast<unsigned char>(byte)));
  }
  out += "]}\n";
}

format::NpyType type_of_code(format::VectorCode code) {
  using format::VectorCode;
  if (code == VectorCode::float32) return format::NpyType::float32;
  return code == VectorCode::int8 || code == VectorCode::binary ? format::NpyType::int8
                                                                : format::NpyType::uint8;
}

bool is_ranged(format::VectorCode code) {
  return code == format::VectorCode::int8 || code == format::VectorCode::uint8;
}

/// Whether the folder has foreign files. A run that is killed at its beginning or its end leaves no job.
bool holds_something_else(const fs::path& folder) {
  const std::vector<fs::path> temporaries = temporaries_of(folder / kVectorJob);
  return std::any_of(fs::directory_iterator(folder), fs::directory_iterator(), [&](const auto& entry) {
    const auto is_entry = [&](const fs::path& path) { return path.filename() == entry.path().filename(); };
    return !is_entry(kVectorPart) && std::none_of(temporaries.begin(), temporaries.end(), is_entry);
  });
}

std::string_view bytes_of(const std::vector<float>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)};
}

}  // namespace

fs::path VectorOutput::folder_of(const fs::path& path) {
  fs::path folder = path;
  return folder += ".parts";
}

fs::path VectorOutput::ranges_of(const fs::path& path) {
  fs::path file = path;
  return file += ".ranges.npy";
}

VectorOutput::VectorOutput(VectorOutputOptions options)
    : options_(std::move(options)), folder_(folder_of(options_.path)), part_(folder_ / kVectorPart) {
  const fs::path job = folder_ / kVectorJob;
  if (fs::exists(folder_) && !fs::exists(job) &&
      (!fs::is_directory(folder_) || holds_something_else(folder_)))
    throw InputError("embed",
                     "{} is in the way: unfinished work is kept there, and it holds something else; move it",
                     folder_.string());
  make_directories(folder_);
  lock_ = std::make_unique<FolderLock>(folder_, "embed");
  if (fs::exists(job) && parse_json_or_null(read_file(job)) != options_.identity) {
    log::warning(
        "{} holds unfinished work with another input, model or options; this run starts from the beginning",
        folder_.string());
    fs::remove(job);
  }
  if (!fs::exists(job)) {
    fs::remove(part_);
    for (const fs::path& abandoned : temporaries_of(job)) fs::remove(abandoned);
    write_file_atomically(job, json_text(options_.identity, 1) + "\n");
  }
  open();
}

/// Continues behind the last complete record.
void VectorOutput::open() {
  std::error_code none;
  const uint64_t size = fs::file_size(part_, none);
  const bool begun = !none && size >= format::kNpyHeader;
  writer_.emplace(part_, begun ? Opening::go_on : Opening::replace);
  if (!begun) return writer_->write(npy_header(format::NpyType::float32, 0, options_.width));
  const uint64_t whole = (size - format::kNpyHeader) / record();
  writer_->cut(format::kNpyHeader + whole * record());
  rows_ = static_cast<int64_t>(whole);
  if (rows_ > 0) log::info("{}: resuming after {} {}", options_.path.string(), rows_, options_.records);
}

std::vector<float> VectorOutput::records() const {
  if (rows_ == 0) return {};
  const MappedFile file(part_);
  std::vector<float> numbers(static_cast<size_t>(rows_ * options_.width));
  std::memcpy(numbers.data(), file.text().data() + format::kNpyHeader, numbers.size() * sizeof(float));
  return numbers;
}

void VectorOutput::write(std::string_view records) {
  writer_->write(records);
  writer_->flush();
  rows_ += static_cast<int64_t>(records.size() / record());
}

void VectorOutput::find_ranges() {
  for_each_vector(format::NpyFile(part_),
                  [&](std::span<const float> vector) { options_.ranges.add(vector); });
}

/// Runs before the file gets its name, so that a file never lies beside another file's ranges, even if the command is
/// killed.
void VectorOutput::replace_ranges() const {
  const fs::path file = ranges_of(options_.path);
  if (!is_ranged(options_.code) || options_.ranges.empty()) {
    fs::remove(file);
    return;
  }
  const std::string contents = npy_header(format::NpyType::float32, 2, options_.width) +
                               std::string(bytes_of(options_.ranges.least)) +
                               std::string(bytes_of(options_.ranges.most));
  if (fs::exists(file) && read_file(file) == contents) return;
  fs::remove(options_.path);
  write_file_atomically(file, contents);
}

void VectorOutput::write_coded(const fs::path& file) const {
  FileWriter out(file, Opening::replace, options_.path);
  const bool npy = options_.form == VectorForm::npy;
  const format::NpyFile table(part_);
  if (npy)
    out.write(npy_header(type_of_code(options_.code), table.rows(),
                         static_cast<int64_t>(code_bytes(options_.code, options_.width) /
                                              npy_size(type_of_code(options_.code)))));
  std::string text;
  for_each_vector(table, [&](std::span<const float> vector) {
    text.clear();
    if (npy)
      append_code(options_.code, vector, options_.ranges, text);
    else
      append_json(options_.code, vector, options_.ranges, text);
    out.write(text);
  });
  out.close(/*sync=*/true);
}

void VectorOutput::finish(const std::function<void(const fs::path& file)>& written) {
  writer_->close(/*sync=*/true);
  writer_.reset();
  put_header(part_, npy_header(format::NpyType::float32, rows_, options_.width));
  if (options_.form == VectorForm::npy && options_.code == format::VectorCode::float32) {
    written(part_);
    replace_ranges();
    fs::rename(part_, options_.path);
  } else {
    if (is_ranged(options_.code) && options_.ranges.empty()) find_ranges();
    Temporary temporary(options_.path, Temporary::Kind::file);
    write_coded(temporary.path());
    written(temporary.path());
    replace_ranges();
    temporary.rename_file();
  }
  sync_path(fs::absolute(options_.path).parent_path());
  fs::remove_all(folder_);
  lock_.reset();
}

format::VectorRanges read_ranges(const fs::path& file) {
  const format::NpyFile table(file);
  if (table.type() != format::NpyType::float32 || table.rows() != 2)
    throw InputError(
        "vectors", "{}: expected two rows of float32, the smallest and the largest number of each dimension",
        file.string());
  format::VectorRanges ranges;
  for (auto* const into : {&ranges.least, &ranges.most}) {
    into->resize(static_cast<size_t>(table.columns()));
    const auto row = table.row(into == &ranges.least ? 0 : 1);
    std::memcpy(into->data(), row.data(), row.size());
  }
  return ranges;
}

}  // namespace funicular::task
