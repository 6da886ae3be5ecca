#include "funicular/train/checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary.h"
#include "funicular/comm/together.h"
#include "funicular/core/region.h"
#include "funicular/format/manifest.h"
#include "funicular/format/safetensors.h"
#include "funicular/format/safetensors_writer.h"

namespace funicular::train {

namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";
/// A checkpoint that is being deleted gets this name among the temporaries, so that recovery does not take it for a
/// new checkpoint.
constexpr const char* kRemoved = "removed";

format::DType to_dtype(at::ScalarType type, const std::string& name) {
  using format::DType;
  switch (type) {
    case at::kFloat:
      return DType::F32;
    case at::kDouble:
      return DType::F64;
    case at::kHalf:
      return DType::F16;
    case at::kBFloat16:
      return DType::BF16;
    case at::kLong:
      return DType::I64;
    case at::kInt:
      return DType::I32;
    case at::kShort:
      return DType::I16;
    case at::kChar:
      return DType::I8;
    case at::kByte:
      return DType::U8;
    case at::kBool:
      return DType::BOOL;
    default:
      throw RunError("checkpoint", "{} has type {}, which checkpoints cannot hold", name,
                     c10::toString(type));
  }
}

/// A logical tensor, and the part of it that this rank holds.
struct Held {
  std::vector<int64_t> shape;
  int64_t begin = 0;  ///< elements of the region
  at::Tensor local;
  bool owned = true, optional = false;
  Region region{};

  /// use(first byte in the tensor, the same in `local`, how many) for all that is here.
  void for_each_piece(const std::function<void(size_t, size_t, size_t)>& use) const {
    const size_t width = local.element_size();
    for_each_run(shape, region, begin, local.numel(), [&](const RegionRun& run) {
      use(static_cast<size_t>(run.in_tensor) * width, static_cast<size_t>(run.in_region - begin) * width,
          static_cast<size_t>(run.size) * width);
    });
  }
};
/// The tensors of one file, by their names in it.
using File = std::map<std::string, Held>;

std::vector<format::TensorDeclaration> declare(const File& file) {
  std::vector<format::TensorDeclaration> declarations;
  for (const auto& [name, held] : file)
    declarations.push_back({name, to_dtype(held.local.scalar_type(), name), held.shape});
  return declarations;
}

/// Returns the bytes of a tensor, which must be contiguous and on the CPU.
std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

/// Writes a file whose tensors this rank holds completely. Returns the hash of the file.
uint64_t write_tensors(const fs::path& path, const File& file) {
  format::SafetensorsWriter writer(path, declare(file));
  for (const format::TensorDeclaration& declaration : writer.order()) {
    const Held& held = file.at(declaration.name);
    if (held.local.numel() != elements_of({}, held.shape))
      throw RunError("checkpoint", "{}: a part of the tensor is held elsewhere", declaration.name);
    writer.write(declaration.name, bytes_of(held.local.detach().cpu().contiguous()));
  }
  return writer.close();
}

/// Writes the pieces that this rank holds into an existing file.
void write_pieces(const fs::path& path, const File& file) {
  format::SafetensorsPieces pieces(path);
  for (const auto& [name, held] : file) {
    if (!held.owned || held.local.numel() == 0) continue;
    const at::Tensor local = held.local.detach().cpu().contiguous();
    held.for_each_piece([&, &key = name](size_t in_tensor, size_t in_local, size_t size) {
      pieces.write_at(key, in_tensor, bytes_of(local).subspan(in_local, size));
    });
  }
  pieces.sync();
}

/// Sorts a strategy's state into the two files of a checkpoint.
class StateFiles final : public parallel::StateVisitor {
 public:
  File model, optimizer;

  void visit(const parallel::StateSlice& slice) override {
    const bool of_optimizer = slice.kind == parallel::StateSlice::Kind::optimizer;
    File& file = of_optimizer ? optimizer : model;
    const std::string key = of_optimizer ? slice.state + "/" + slice.name : slice.name;
    const Held held{slice.shape, slice.begin, slice.local, slice.owned, slice.optional, slice.region};
    if (!file.emplace(key, held).second) throw RunError("checkpoint", "two tensors are named {}", key);
  }
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

/// Throws InputError unless `file` holds exactly `tensors`; with `may_have_more` also what other ranks had
/// for themselves.
void check_tensors(const format::SafetensorsFile& file, const File& tensors, bool may_have_more) {
  for (const auto& [name, held] : tensors) {
    const format::TensorEntry* entry = file.find(name);
    if (!entry && held.optional) continue;
    if (!entry)
      throw InputError("checkpoint", "{}: the tensor {} is missing; was it written by another model?",
                       file.path().string(), name);
    const format::DType dtype = to_dtype(held.local.scalar_type(), name);
    if (entry->shape != held.shape || entry->dtype != dtype)
      throw InputError("checkpoint", "{}: {} is {} {}; the model expects {} {}", file.path().string(), name,
                       format::dtype_name(entry->dtype), shape_text(entry->shape), format::dtype_name(dtype),
                       shape_text(held.shape));
  }
  for (const format::TensorEntry& entry : file.entries())
    if (!tensors.contains(entry.name) && !(may_have_more && entry.name.starts_with(parallel::kRanksOwn)))
      throw InputError("checkpoint", "{}: the model has no tensor {}; was it written by another model?",
                       file.path().string(), entry.name);
}

void copy_tensors(const format::SafetensorsFile& file, const File& tensors) {
  for (const auto& [name, held] : tensors) {
    const at::Tensor& local = held.local;
    if (local.numel() == 0) continue;
    if (!file.find(name)) {
      local.detach().zero_();
      continue;
    }
    const bool here = local.is_cpu() && local.is_contiguous();
    const at::Tensor into =
        here ? local : at::empty(local.sizes(), at::TensorOptions().dtype(local.scalar_type()));
    auto* const to = static_cast<std::byte*>(into.mutable_data_ptr());
    const std::byte* const data = file.at(name).data.data();
    held.for_each_piece([&](size_t in_tensor, size_t in_local, size_t size) {
      std::memcpy(to + in_local, data + in_tensor, size);
    });
    if (!here) local.detach().copy_(into);
  }
}

/// Renames the folder before it deletes it, so that a kill in the middle leaves no half checkpoint under a real
/// name.
void remove_folder(const fs::path& folder) {
  const fs::path hidden = temporary_name(folder.parent_path() / kRemoved);
  std::error_code error;
  fs::rename(folder, hidden, error);
  if (error) throw RunError("checkpoint", "cannot remove {}: {}", folder.string(), error.message());
  fs::remove_all(hidden, error);
}

/// Returns what is wrong with a checkpoint, or "" if it is sound. If `step` is given, the checkpoint must belong to
/// that step.
std::string problem_of(const fs::path& checkpoint, std::optional<int64_t> step = {}) {
  if (const auto problem = format::verify_manifest(checkpoint)) return *problem;
  try {
    const int64_t found = read_state(checkpoint).step;
    if (step && found != *step) return fmt::format("state.json belongs to step {}", found);
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

/// Moves a complete checkpoint to `place`. An earlier checkpoint there is deleted only after the new one has been
/// verified.
void commit(const fs::path& temporary, const fs::path& place) {
  const fs::path earlier = put_in_place(temporary, place);
  if (earlier.empty()) return;
  if (const std::string problem = problem_of(place); !problem.empty()) {
    const fs::path damaged = put_in_place(earlier, place);
    std::error_code ignored;
    fs::remove_all(damaged, ignored);
    throw RunError("checkpoint", "{} does not verify after it was written: {}; the earlier one is kept",
                   place.string(), problem);
  }
  remove_folder(earlier);
}

std::map<std::string, std::string> get_texts(const Json& json, const char* key, const std::string& origin) {
  return json_get<std::map<std::string, std::string>>(json, key, origin);
}

}  // namespace

OrderedJson TrainingState::to_json() const {
  OrderedJson json = {{"version", 1},
                      {"step", step},
                      {"loss_sum", loss_sum},
                      {"loss_steps", loss_steps},
                      {"evaluated_step", evaluated_step},
                      {"best_step", best_step},
                      {"best_evaluation", best_evaluation},
                      {"evaluations_without_gain", evaluations_without_gain},
                      {"loss_watch", loss_watch.to_json()},
                      {"loss_scaler", loss_scaler},
                      {"identity", identity},
                      {"settings", settings}};
  if (!drawn.empty()) json["drawn"] = drawn;
  return json;
}

TrainingState TrainingState::from_json(const Json& json, const std::string& origin) {
  const auto version = json_get<int64_t>(json, "version", origin);
  if (version != 1) throw InputError("checkpoint", "{}: version {} is unknown; expected 1", origin, version);
  TrainingState state;
  state.step = json_get<int64_t>(json, "step", origin);
  state.loss_sum = json_get<double>(json, "loss_sum", origin);
  state.loss_steps = json_get<int64_t>(json, "loss_steps", origin);
  state.evaluated_step = json_get<int64_t>(json, "evaluated_step", origin);
  state.best_step = json_get<int64_t>(json, "best_step", origin);
  const Json best = json_get<Json>(json, "best_evaluation", origin);
  for (const auto& [name, value] : best.items())
    state.best_evaluation[name] = value.is_number() ? value.get<double>() : NAN;  // JSON has no NaN: null
  state.evaluations_without_gain = json_get<int64_t>(json, "evaluations_without_gain", origin);
  state.loss_watch = LossWatch::from_json(json_get_or<Json>(json, "loss_watch", {}, origin), origin);
  if (const auto scaler = json.find("loss_scaler"); scaler != json.end()) state.loss_scaler = *scaler;
  state.drawn = json_get_or<std::vector<int64_t>>(json, "drawn", {}, origin);
  state.identity = get_texts(json, "identity", origin);
  state.settings = get_texts(json, "settings", origin);
  return state;
}

std::string checkpoint_name(int64_t step) {
  return fmt::format("step-{:06}", step);
}

std::vector<std::pair<int64_t, fs::path>> list_checkpoints(const fs::path& folder) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int64_t step = 0;
    const auto parsed = name.starts_with("step-")
                            ? std::from_chars(name.data() + 5, name.data() + name.size(), step)
                            : std::from_chars_result{nullptr, std::errc::invalid_argument};
    if (parsed.ec == std::errc() && parsed.ptr == name.data() + name.size() && entry->is_directory(ignored))
      found.emplace_back(step, entry->path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

namespace {

/// Gives the files' hashes where they are known. Collective.
std::map<std::string, uint64_t> write_files(const comm::Group& group, const fs::path& folder,
                                            const std::map<std::string, const File*>& files) {
  std::map<std::string, uint64_t> hashes;
  if (group.size() == 1) {
    for (const auto& [name, file] : files) hashes[name] = write_tensors(folder / name, *file);
    return hashes;
  }
  together(group, [&] {
    for (const auto& [name, file] : files)
      if (group.rank() == 0) format::create_safetensors(folder / name, declare(*file));
  });
  together(group, [&] {
    for (const auto& [name, file] : files) write_pieces(folder / name, *file);
  });
  return hashes;
}

}  // namespace

void write_slices(const comm::Group& group, const fs::path& path,
                  const std::function<void(parallel::StateVisitor&)>& visit) {
  StateFiles files;
  visit(files);
  files.model.merge(files.optimizer);
  write_files(group, path.parent_path(), {{path.filename().string(), &files.model}});
}

fs::path write_checkpoint(parallel::Strategy& strategy, const TrainingState& state, const fs::path& folder,
                          const std::function<void()>& before_commit) {
  const comm::Group& group = strategy.group();
  const bool first = group.rank() == 0;
  const fs::path final_path = folder / checkpoint_name(state.step);
  fs::path temporary;
  try {
    temporary = from_first(group, [&] {
      make_directories(folder);
      return make_temporary_folder(final_path).string();
    });
    StateFiles files;
    strategy.visit_state(files);
    const auto hashes =
        write_files(group, temporary, {{kModelFile, &files.model}, {kOptimizerFile, &files.optimizer}});
    together(group, [&] {
      if (!first) return;
      write_file_atomically(temporary / kStateFile, json_text(state.to_json(), 2) + "\n");
      if (before_commit) before_commit();
      format::write_manifest(temporary, hashes);
      // From here on the folder with the temporary name may hold the only sound checkpoint of this step, so no
      // error may delete it.
      commit(std::exchange(temporary, fs::path()), final_path);
    });
  } catch (...) {
    std::error_code ignored;
    if (first && !temporary.empty()) fs::remove_all(temporary, ignored);
    try {
      throw;
    } catch (const fs::filesystem_error& error) {
      throw RunError("checkpoint", "{}", std::string(error.what()));
    }
  }
  return final_path;
}

void prune_checkpoints(const fs::path& folder, int64_t keep, int64_t best_step) {
  const auto checkpoints = list_checkpoints(folder);
  if (keep <= 0 || static_cast<int64_t>(checkpoints.size()) <= keep) return;
  if (const auto problem = format::verify_manifest(checkpoints.front().second))
    throw RunError("checkpoint",
                   "{} does not verify after it was written: {}; the older checkpoints are kept",
                   checkpoints.front().second.string(), *problem);
  for (size_t i = static_cast<size_t>(keep); i < checkpoints.size(); ++i)
    if (checkpoints[i].first != best_step) remove_folder(checkpoints[i].second);
}

void recover_leftovers(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with(kTemporaryPrefix)) leftovers.push_back(entry->path());
  // If the file system cannot exchange two names, two checkpoints of one step may be left. The one written last
  // counts.
  const auto age = [](const fs::path& path) {
    std::error_code none;
    return fs::last_write_time(path / format::kManifestName, none);
  };
  std::sort(leftovers.begin(), leftovers.end(),
            [&](const fs::path& a, const fs::path& b) { return age(a) > age(b); });
  const auto removed = temporaries_of(folder / kRemoved);
  for (const fs::path& leftover : leftovers) {
    const bool was_to_go = std::find(removed.begin(), removed.end(), leftover) != removed.end();
    if (!was_to_go && problem_of(leftover).empty()) {
      const int64_t step = read_state(leftover).step;
      const fs::path place = folder / checkpoint_name(step);
      if (!problem_of(place, step).empty()) {
        const fs::path damaged = put_in_place(leftover, place);
        if (!damaged.empty()) fs::remove_all(damaged, error);
        log::warning("recovered the checkpoint {}, which was written wholly when the process was killed",
                     place.string());
        continue;
      }
    }
    fs::remove_all(leftover, error);
  }
}

fs::path newest_valid_checkpoint(const fs::path& folder) {
  for (const auto& [step, path] : list_checkpoints(folder)) {
    const std::string problem = problem_of(path, step);
    if (problem.empty()) return path;
    log::warning("the checkpoint {} is damaged and is passed over: {}", path.string(), problem);
  }
  return {};
}

TrainingState read_state(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kStateFile;
  return TrainingState::from_json(read_json(path), path.string());
}

void read_tensors(parallel::Strategy& strategy, const fs::path& checkpoint) {
  StateFiles files;
  strategy.visit_state(files);
  std::optional<format::SafetensorsFile> model, optimizer;
  together(strategy.group(), [&] {
    model.emplace(checkpoint / kModelFile);
    optimizer.emplace(checkpoint / kOptimizerFile);
    check_tensors(*model, files.model, false);
    check_tensors(*optimizer, files.optimizer, true);
  });
  copy_tensors(*model, files.model);
  copy_tensors(*optimizer, files.optimizer);
  strategy.state_changed();
}

void check_finite(parallel::Strategy& strategy, int64_t step) {
  struct Check final : parallel::StateVisitor {
    explicit Check(int64_t number) : step(number) {}
    void visit(const parallel::StateSlice& slice) override {
      if (slice.kind == parallel::StateSlice::Kind::optimizer || !slice.local.is_floating_point()) return;
      if (!at::isfinite(slice.local).all().item<bool>())
        throw RunError("trainer",
                       "step {}: {} is no longer finite after the update. Nothing of this step is saved; a "
                       "lower learning rate or a longer warm-up may help",
                       step, slice.name);
    }
    int64_t step;
  } check(step);
  const at::NoGradGuard no_gradient;
  together(strategy.group(), [&] { strategy.visit_state(check); });
}

namespace {

/// Parameters and buffers by their logical names.
File tensors_of(const Model& model) {
  File file;
  const auto add = [&](const std::string& name, const at::Tensor& value) {
    file.emplace(name, Held{value.sizes().vec(), 0, value.detach(), true, false, {}});
  };
  for (const auto& parameter : model.parameters) {
    if (!parameter->exported) continue;
    const at::Tensor& value = parameter->master;
    for (const Parameter::Slice& slice : parameter->slices)
      add(slice.name, value.dim() == 0 ? value : value.narrow(0, slice.begin, slice.end - slice.begin));
  }
  for (const Buffer& buffer : model.buffers) add(buffer.name, buffer.value);
  return file;
}

}  // namespace

void write_model_file(const Model& model, const fs::path& path) {
  write_tensors(path, tensors_of(model));
}

void read_model_file(Model& model, const fs::path& path) {
  const at::NoGradGuard no_gradient;
  const File tensors = tensors_of(model);
  const format::SafetensorsFile file(path);
  check_tensors(file, tensors, /*may_have_more=*/false);
  copy_tensors(file, tensors);
}

}  // namespace funicular::train
