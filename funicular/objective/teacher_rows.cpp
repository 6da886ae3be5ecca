#include "funicular/objective/teacher_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/base/number.h"
#include "funicular/base/progress.h"
#include "funicular/base/temporary.h"
#include "funicular/data/share_source.h"
#include "funicular/objective/distillation_terms.h"

namespace funicular::objective {

namespace {

// ---- soft labels

class FileLogits final : public TeacherRows {
 public:
  FileLogits(std::vector<float> logits, int64_t classes) : logits_(std::move(logits)), classes_(classes) {}
  void add(MicroBatch& batch, std::span<const data::Sample> samples) const override {
    const at::Tensor rows = at::empty({static_cast<int64_t>(samples.size()), classes_}, at::kFloat);
    float* out = rows.data_ptr<float>();
    for (const data::Sample& sample : samples)
      out = std::copy_n(logits_.data() + sample.sample_id * classes_, classes_, out);
    batch.tensors["teacher.logits"] = rows;
  }

 private:
  std::vector<float> logits_;
  int64_t classes_;
};

double probability(std::string_view text, const format::TextFile& file, uint64_t offset) {
  const auto value = file.decimal_commas() ? read_number_with_comma(text) : read_number(text);
  if (value && *value >= 0 && *value <= 1) return *value;
  const bool comma = !value && read_number_with_comma(text);
  throw InputError(
      "distillation", "{}: expected a probability from 0 to 1, found \"{}\"{}", file.where(offset), text,
      comma ? "; write a decimal point, not a comma (a comma is read where semicolons separate the columns)"
            : "");
}

/// Collects rows of probabilities, and the deviations of their sums from 1.
class SoftRows {
 public:
  void add(std::span<const double> row, uint64_t offset) {
    double sum = 0;
    for (const double value : row) {
      sum += value;
      decimals_ = std::max(decimals_, data::decimals_of(value));
    }
    for (const double value : row)
      logits_.push_back(static_cast<float>(std::log(value / (sum > 0 ? sum : 1))));
    if (std::abs(sum - 1) > data::share_sum_bound(0, 0)) off_.push_back({offset, sum});
    ++rows_;
  }

  /// Returns the logits. Refuses sums that the rounding of the written decimals does not explain. Warns of the number
  /// of sums that it does explain.
  std::vector<float> take(const format::TextFile& file, int64_t classes) {
    const double bound = data::share_sum_bound(static_cast<size_t>(classes), decimals_);
    for (const auto& [offset, sum] : off_)
      if (std::abs(sum - 1) > bound)
        throw InputError(
            "distillation",
            "{}: the probabilities sum to {:.6g}; expected 1, or within {:.3g} of it, which the rounding to "
            "{} decimals explains (logits become probabilities by a softmax)",
            file.where(offset), sum, bound, decimals_);
    if (!off_.empty())
      log::warning(
          "{}: in {} of {} rows the probabilities sum to 1 only within the rounding of their {} decimals; "
          "they are divided by their sum",
          file.path().string(), off_.size(), rows_, decimals_);
    return std::move(logits_);
  }

 private:
  struct Off {
    uint64_t offset;
    double sum;
  };
  std::vector<float> logits_;
  std::vector<Off> off_;
  int decimals_ = 0;
  size_t rows_ = 0;
};

// ---- the cache's files

constexpr int64_t kVersion = 2;
/// In cache.json: the cached rows in blocks, each with the checksum of its bytes in every file.
constexpr const char* kBlocks = "blocks";
/// In cache.json: the teacher's activations that the cache stores.
constexpr const char* kActivations = "activations";

at::ScalarType kept_type(const KeptActivation& kept) {
  return kept.of_tokens ? at::kBFloat16 : at::kFloat;
}

/// Bytes per row.
int64_t row_bytes(const KeptActivation& kept) {
  return kept.width * static_cast<int64_t>(c10::elementSize(kept_type(kept)));
}

class Cache final : public TeacherRows {
 public:
  Cache(fs::path folder, const CacheIdentity& identity, std::vector<KeptActivation> activations,
        const std::vector<int32_t>& lengths)
      : folder_(std::move(folder)), activations_(std::move(activations)), starts_{0} {
    for (const int32_t length : lengths) starts_.push_back(starts_.back() + length);
    stated_ = {{"version", kVersion},   {"teacher", identity.teacher},
               {"data", identity.data}, {"sequences", identity.sequences},
               {"rows", rows()},        {"tokens", starts_.back()}};
    for (const KeptActivation& kept : activations_)
      stated_[kActivations].push_back(
          {{"name", kept.name}, {"width", kept.width}, {"of_tokens", kept.of_tokens}});
  }

  int64_t rows() const { return static_cast<int64_t>(starts_.size()) - 1; }
  /// Reads the cached rows and returns their number. Throws InputError for another identity. With `verify` it also
  /// throws if a block's bytes have changed since they were written.
  int64_t read(bool verify);
  /// Runs the teacher on the rows from `begin` on.
  void fill(int64_t begin, int64_t tokens, const TeacherPass& pass);
  void map();
  void add(MicroBatch& batch, std::span<const data::Sample> samples) const override;

 private:
  fs::path meta() const { return folder_ / "cache.json"; }
  fs::path file(const KeptActivation& kept) const { return folder_ / (kept.name + ".bin"); }
  /// Rows of the activation's file before sample `row`.
  int64_t start(const KeptActivation& kept, int64_t row) const {
    return kept.of_tokens ? starts_[static_cast<size_t>(row)] : row;
  }
  /// A file that grows, and the checksum of the bytes written since the last block.
  struct Growing {
    explicit Growing(const fs::path& path) : file(path, Opening::go_on) {}
    FileWriter file;
    std::optional<StreamHash> hash{std::in_place};
  };
  void check(int64_t begin, const OrderedJson& block, bool verify) const;
  void state() const;
  /// Ends a block with the rows before `end`.
  void keep(int64_t end, std::vector<std::unique_ptr<Growing>>& files);
  void append(int64_t begin, int64_t end, const TensorMap& found,
              std::vector<std::unique_ptr<Growing>>& files) const;
  [[noreturn]] void refuse_other(const std::string& key, const OrderedJson& theirs) const;
  [[noreturn]] void refuse_damaged(const std::string& what) const;

  fs::path folder_;
  std::vector<KeptActivation> activations_;
  std::vector<int64_t> starts_;  ///< tokens before each sample
  OrderedJson stated_;
  OrderedJson blocks_ = OrderedJson::array();  ///< {"end": 128, "xxh3": ["…" a file]}
  std::vector<MappedFile> files_;
};

/// Texts for an error message, by key of cache.json: what differs if the value differs, and a remedy other than
/// another folder.
struct StatedKey {
  const char *key, *differs, *remedy;
};
constexpr StatedKey kStated[] = {
    {"version", "another version of this program", ""},
    {"teacher", "another teacher, or with another arithmetic", ""},
    {"data", "other rows", ""},
    {"sequences", "rows that were cut otherwise",
     "give the --max-length and --truncation that it was made with, "},
    {"rows", "another number of rows", ""},
    {"tokens", "another number of tokens", ""},
    {kActivations, "other answers of the teacher",
     "give the --terms, --layer-map and --relation-layer that it was made with, "}};

/// "2", "logits, hidden.1"
std::string in_words(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::vector<std::string> names;
  for (const OrderedJson& one : value) {
    const OrderedJson name = one.is_object() ? one.value("name", OrderedJson()) : OrderedJson();
    const std::string text = name.is_string() ? name.get<std::string>() : "?";
    names.push_back(text.starts_with(kTeacher) ? text.substr(std::string_view(kTeacher).size()) : text);
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

void Cache::refuse_other(const std::string& key, const OrderedJson& theirs) const {
  const StatedKey& stated = *std::find_if(std::begin(kStated), std::end(kStated),
                                          [&](const StatedKey& one) { return key == one.key; });
  throw InputError("distillation",
                   "--cache-teacher {}: the cache there was made with {} ({}; this run has {}); {}choose "
                   "another folder, or delete that one",
                   folder_.string(), stated.differs, in_words(theirs), in_words(stated_[key]), stated.remedy);
}

void Cache::refuse_damaged(const std::string& what) const {
  throw InputError("distillation", "--cache-teacher {}: {}; delete that folder and give the command again",
                   folder_.string(), what);
}

int64_t Cache::read(bool verify) {
  if (!fs::exists(meta())) return 0;
  const OrderedJson found = parse_json_or_null<OrderedJson>(read_file(meta()));
  if (!found.is_object()) refuse_damaged("cache.json is damaged: it is no JSON object");
  for (const auto& [key, value] : stated_.items())
    if (const OrderedJson theirs = found.value(key, OrderedJson()); theirs != value) {
      if (theirs.is_null()) refuse_damaged(fmt::format("cache.json is damaged: it lacks the key {}", key));
      refuse_other(key, theirs);
    }
  blocks_ = found.value(kBlocks, OrderedJson());
  if (!blocks_.is_array()) refuse_damaged("cache.json is damaged: it has no list of blocks");
  int64_t done = 0;
  for (const OrderedJson& block : blocks_) {
    const OrderedJson whole = block.is_object() ? block : OrderedJson::object();
    const OrderedJson end = whole.value("end", OrderedJson()), sums = whole.value("xxh3", OrderedJson());
    if (!end.is_number_integer() || end <= done || end > rows() || !sums.is_array() ||
        sums.size() != activations_.size())
      refuse_damaged(
          fmt::format("cache.json is damaged: the block behind row {} is none of the rows that follow, with "
                      "their checksums",
                      done));
    check(done, block, verify);
    done = end;
  }
  return done;
}

/// Nothing else would detect a flipped byte, as a student learns wrong answers just as well.
void Cache::check(int64_t begin, const OrderedJson& block, bool verify) const {
  const int64_t end = block["end"];
  for (size_t i = 0; i < activations_.size(); ++i) {
    const KeptActivation& kept = activations_[i];
    const auto first = static_cast<size_t>(start(kept, begin) * row_bytes(kept)),
               last = static_cast<size_t>(start(kept, end) * row_bytes(kept));
    const MappedFile mapped(file(kept));
    if (mapped.bytes().size() < last)
      refuse_damaged(fmt::format("{} is cut off: it has {} bytes, and its {} rows have {}",
                                 file(kept).filename().string(), mapped.bytes().size(), end, last));
    if (!verify) continue;
    mapped.advise_sequential();
    const std::string sum = hash_text(hash_bytes(mapped.bytes().data() + first, last - first));
    if (block["xxh3"][i] != sum)
      refuse_damaged(fmt::format("rows {} to {} of {} are damaged (their checksum is {}, written was {})",
                                 begin, end - 1, file(kept).filename().string(), sum,
                                 in_words(block["xxh3"][i])));
  }
}

void Cache::state() const {
  OrderedJson all = stated_;
  all[kBlocks] = blocks_;
  write_file_atomically(meta(), all.dump(1) + "\n");
}

void Cache::append(int64_t begin, int64_t end, const TensorMap& found,
                   std::vector<std::unique_ptr<Growing>>& files) const {
  for (size_t i = 0; i < activations_.size(); ++i) {
    const KeptActivation& kept = activations_[i];
    const at::Tensor value = found.at(kept.name).to(at::kCPU, kept_type(kept)).contiguous();
    const int64_t count = start(kept, end) - start(kept, begin);
    if (value.dim() != 2 || value.size(0) != count || value.size(1) != kept.width)
      throw InputError("distillation", "the teacher gave {} of [{}, {}]; expected [{}, {}]", kept.name,
                       value.size(0), value.size(1), count, kept.width);
    files[i]->file.write(value.const_data_ptr(), value.nbytes());
    files[i]->hash->update(value.const_data_ptr(), value.nbytes());
  }
}

void Cache::keep(int64_t end, std::vector<std::unique_ptr<Growing>>& files) {
  OrderedJson sums = OrderedJson::array();
  for (size_t i = 0; i < activations_.size(); ++i) {
    files[i]->file.flush();
    sync_path(file(activations_[i]));
    sums.push_back(hash_text(files[i]->hash->digest()));
    files[i]->hash.emplace();
  }
  blocks_.push_back({{"end", end}, {"xxh3", sums}});
  state();
}

void Cache::fill(int64_t begin, int64_t tokens, const TeacherPass& pass) {
  // Makes at most about a thousand blocks, as each one rewrites cache.json.
  const int64_t batches_of_a_block =
      std::max<int64_t>(16, starts_.back() / std::max<int64_t>(tokens, 1) / 1000);
  make_directories(folder_);
  const FolderLock lock(folder_, "distillation");
  std::vector<std::unique_ptr<Growing>> files;
  for (const KeptActivation& kept : activations_) {
    files.push_back(std::make_unique<Growing>(file(kept)));
    files.back()->file.cut(static_cast<uint64_t>(start(kept, begin) * row_bytes(kept)));
  }
  if (begin == 0) state();
  const InterruptGuard guard;
  ProgressOptions shown;
  shown.unit = "rows";
  shown.start = static_cast<uint64_t>(begin);
  Progress progress("teacher", static_cast<uint64_t>(rows()), shown);
  for (int64_t batch = 1; begin < rows(); ++batch) {
    int64_t end = begin + 1;
    while (end < rows() &&
           starts_[static_cast<size_t>(end) + 1] - starts_[static_cast<size_t>(begin)] <= tokens)
      ++end;
    append(begin, end, pass(begin, end), files);
    begin = end;
    progress.update(static_cast<uint64_t>(begin));
    const bool stop = interrupt_requested() != 0;
    if (stop || begin == rows() || batch % batches_of_a_block == 0) keep(begin, files);
    if (stop) throw CacheInterrupted{};
  }
}

void Cache::map() {
  for (const KeptActivation& kept : activations_) files_.emplace_back(file(kept));
}

void Cache::add(MicroBatch& batch, std::span<const data::Sample> samples) const {
  for (size_t i = 0; i < activations_.size(); ++i) {
    const KeptActivation& kept = activations_[i];
    int64_t count = 0;
    for (const data::Sample& sample : samples)
      count += start(kept, sample.sample_id + 1) - start(kept, sample.sample_id);
    const at::Tensor rows = at::empty({count, kept.width}, kept_type(kept));
    auto* out = static_cast<std::byte*>(rows.data_ptr());
    for (const data::Sample& sample : samples) {
      const int64_t first = start(kept, sample.sample_id), next = start(kept, sample.sample_id + 1);
      const auto bytes = static_cast<size_t>((next - first) * row_bytes(kept));
      std::memcpy(out, files_[i].bytes().data() + first * row_bytes(kept), bytes);
      out += bytes;
    }
    batch.tensors[kept.name] = rows;
  }
}

}  // namespace

std::shared_ptr<const TeacherRows> read_soft_labels(const fs::path& path, format::TextOptions layout,
                                                    int64_t rows) {
  const auto classes = static_cast<int64_t>(layout.columns.size());
  const format::TextFile file(path, std::move(layout));
  SoftRows soft;
  std::vector<double> probabilities;
  format::RowReader reader(file);
  int64_t found = 0;
  for (const format::Row* row = reader.next(); row; row = reader.next(), ++found) {
    probabilities.clear();
    for (const std::string_view text : row->columns)
      probabilities.push_back(probability(text, file, row->offset));
    soft.add(probabilities, row->offset);
  }
  std::vector<float> logits = soft.take(file, classes);
  if (found != rows)
    throw InputError("distillation", "{} has {} rows of probabilities; expected {}, one for each text",
                     path.string(), found, rows);
  return std::make_shared<FileLogits>(std::move(logits), classes);
}

std::shared_ptr<const TeacherRows> open_teacher_cache(const fs::path& folder, const CacheIdentity& identity,
                                                      const std::vector<KeptActivation>& activations,
                                                      const std::vector<int32_t>& lengths, int64_t tokens,
                                                      const TeacherPass& pass, bool verify) {
  auto cache = std::make_shared<Cache>(folder, identity, activations, lengths);
  if (const int64_t done = cache->read(verify);
      pass && (done < cache->rows() || !fs::exists(folder / "cache.json"))) {
    if (done > 0)
      log::info("the teacher's cache {} has {} of {} rows; going on", folder.string(), done, cache->rows());
    cache->fill(done, tokens, pass);
  } else if (!pass && done < cache->rows()) {
    throw InputError(
        "distillation",
        "--cache-teacher {}: the cache has {} of {} rows, though rank 0 has filled it; expected a "
        "folder that all hosts share",
        folder.string(), done, cache->rows());
  }
  cache->map();
  return cache;
}

}  // namespace funicular::objective
