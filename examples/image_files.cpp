// Images that lie in files, varied by chance while loader threads read them, for a network with batch normalisation. It stops
// when it gets no better. One word chooses the layout:
//
//   example_image_files                                        one process with 0, 1 and 3 loader threads, which give the
//                                                              same weights; then two layouts in this process
//   example_image_files single                                 one process
//   example_image_files "dp --devices 2"                       two copies of the network in this process
//   funicular launch -n 2 example_image_files "pipeline"       two stages, each a process
//   funicular launch -n 2 example_image_files "zero2"          two processes that divide gradients and optimiser state
//
// IMAGES=FOLDER reads FOLDER/train/CLASS/*.pgm and FOLDER/test/CLASS/*.pgm, with the same classes. Otherwise the images are
// made here.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/random.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/core/wrap_module.h"
#include "funicular/parallel/layout.h"
#include "funicular/train/trainer.h"

using namespace funicular;
namespace fs = std::filesystem;

constexpr int64_t kSide = 16;

/// Images of a folder with one folder per class. Nothing is kept in memory but names and labels.
class ImageFiles final : public train::Source {
 public:
  explicit ImageFiles(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.is_directory()) classes_.push_back(entry.path().filename().string());
    std::sort(classes_.begin(), classes_.end());  // the system gives names in any order
    StreamHash hash;
    for (size_t label = 0; label < classes_.size(); ++label) {
      std::vector<fs::path> files;
      for (const auto& entry : fs::directory_iterator(folder / classes_[label]))
        files.push_back(entry.path());
      std::sort(files.begin(), files.end());
      for (const fs::path& file : files) {
        files_.push_back({file, static_cast<int64_t>(label)});
        const std::string name = file.filename().string();
        hash.update(name.data(), name.size());
        hash.update(&label, sizeof label);
      }
    }
    fingerprint_ = hash.digest();
    if (files_.empty())
      throw InputError("images", "{}: expected images in one folder per class, found none", folder.string());
  }
  /// Names in the order of the labels.
  const std::vector<std::string>& classes() const { return classes_; }
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  /// A checkpoint is resumed with the same files only.
  uint64_t fingerprint() const override { return fingerprint_; }
  /// The limit --micro-batch-tokens counts each image as one token.
  int64_t length(int64_t) const override { return 1; }
  /// A row's loss depends on no other row, as far as the data go.
  LossOver loss_over() const override { return LossOver::rows; }

  /// Loader threads call it, several at once: it changes nothing, and all that it draws is keyed by the seed and the draw.
  /// So the images are the same for any number of workers, ranks and micro-batches, and in a resumed run.
  MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override {
    MicroBatch batch;
    std::vector<at::Tensor> images;
    std::vector<int64_t> labels, samples, draw_ids;
    for (const data::Draw& draw : draws) {
      const File& file = files_.at(static_cast<size_t>(draw.sample_id));
      const at::Tensor image = read(file.path);
      images.push_back(random.training ? vary(image, random.seed, draw.draw_id) : image);
      labels.push_back(file.label);
      samples.push_back(draw.sample_id);
      draw_ids.push_back(draw.draw_id);
    }
    batch.tensors["image"] = torch::stack(images);
    batch.tensors["label"] = torch::tensor(labels, torch::kLong);
    batch.packing = Packing::from_lengths(std::vector<int32_t>(draws.size(), 1), samples, draw_ids, random);
    batch.counts["samples"] = static_cast<double>(draws.size());
    return batch;
  }

  /// A grey image of a binary PGM file: [1, kSide, kSide], from 0 to 1.
  static at::Tensor read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::string kind;
    int64_t width = 0, height = 0, most = 0;
    if (!(file >> kind >> width >> height >> most) || kind != "P5" || width != kSide || height != kSide ||
        most != 255)
      throw InputError("images", "{}: expected a binary PGM file of {} x {} pixels", path.string(), kSide,
                       kSide);
    file.get();  // the blank behind the header
    const at::Tensor pixels = torch::empty({1, kSide, kSide}, torch::kByte);
    if (!file.read(reinterpret_cast<char*>(pixels.data_ptr()), pixels.numel()))
      throw InputError("images", "{}: the file ends before its last pixel", path.string());
    return pixels.to(torch::kFloat) / 255;
  }

 private:
  struct File {
    fs::path path;
    int64_t label = 0;
  };

  /// Shifted by up to two pixels, mirrored in half of the draws, lighter or darker.
  static at::Tensor vary(const at::Tensor& image, uint64_t seed, int64_t draw) {
    const RandomKey key = make_key(seed, Purpose::user);
    const RandomBlock bits = philox(key, make_counter(0, 0, static_cast<uint64_t>(draw)));
    const auto right = static_cast<int64_t>(bits[0] % 5) - 2, down = static_cast<int64_t>(bits[1] % 5) - 2;
    at::Tensor varied = torch::roll(image, {down, right}, {1, 2});
    if (bits[2] % 2 == 1) varied = varied.flip(2);
    return varied * (0.8 + 0.4 * (bits[3] >> 8) * 0x1p-24);
  }

  std::vector<std::string> classes_;
  std::vector<File> files_;
  uint64_t fingerprint_ = 0;
};

/// The share of right answers.
class Accuracy final : public Metrics {
 public:
  void start() override { right_ = all_ = 0; }
  void add(const TensorMap& outputs) override {
    right_ += outputs.at("answer").eq(outputs.at("label")).sum().item<double>();
    all_ += static_cast<double>(outputs.at("label").numel());
  }
  std::map<std::string, double> finish(double) override { return {{"accuracy", right_ / all_}}; }

 private:
  double right_ = 0, all_ = 0;
};

struct Trained {
  train::FitResult result;
  uint64_t weights = 0;  ///< a hash
};

Trained train_images(const ImageFiles& seen, const ImageFiles& unseen, const std::string& layout,
                     int workers) {
  torch::manual_seed(1);  // of the weights, before they are made
  torch::nn::Sequential net(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)), torch::nn::BatchNorm2d(8),
      torch::nn::ReLU(), torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 3).stride(2)),
      torch::nn::BatchNorm2d(16), torch::nn::ReLU(), torch::nn::AdaptiveMaxPool2d(1), torch::nn::Flatten(),
      torch::nn::Linear(16, static_cast<int64_t>(seen.classes().size())));
  Model model = wrap_sequential(
      net, "image", torch::zeros({1, 1, kSide, kSide}),
      [](const at::Tensor& output, const MicroBatch& batch, LossSink& loss) {
        loss.add("cross_entropy", at::cross_entropy_loss(output, batch["label"], {}, at::Reduction::Sum));
        loss.output("answer", output.argmax(1));
        loss.output("label", batch["label"]);
      });
  Trainer trainer(
      {.num_train_epochs = 12,
       .batch_size = 32,
       .seed = 7,
       .logging_steps = 0,
       .eval_steps = 10,
       .patience = 3,  // evaluations in a row that are no better end the training
       .best_metric = "accuracy",
       .greater_is_better = true,
       .num_workers = workers,
       .progress = false},
      [&] {
        return parallel::make_strategy(parallel::Layout::parse(layout), comm::Group::from_environment());
      },
      optim::AdamW{.learning_rate = 3e-3, .weight_decay = 0.01});
  Accuracy accuracy;
  Trained trained;
  trained.result = trainer.fit(model, seen, {&unseen, &accuracy});
  StreamHash hash;
  for (const auto& weight : net->parameters())
    hash.update(weight.contiguous().const_data_ptr(), weight.nbytes());
  trained.weights = hash.digest();
  std::printf("%-22s %d workers: accuracy %.3f at step %lld of %lld%s\n", layout.c_str(), workers,
              trained.result.best_evaluation.at("accuracy"), static_cast<long long>(trained.result.best_step),
              static_cast<long long>(trained.result.step),
              trained.result.stopped_early ? ", stopped early" : "");
  return trained;
}

/// Stripes across, stripes down and squares, in noise.
void make_images(const fs::path& folder, int64_t count) {
  const char* const names[] = {"across", "down", "squares"};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t kind = i % 3, phase = torch::randint(4, {}).item<int64_t>();
    const at::Tensor stripes = (torch::arange(kSide) + phase).floor_divide(2).remainder(2).to(torch::kFloat);
    const at::Tensor rows = stripes.unsqueeze(1).expand({kSide, kSide}), columns = rows.t();
    at::Tensor image = kind == 0 ? rows : kind == 1 ? columns : (rows - columns).abs();
    image = (0.3 + 0.4 * image + 0.15 * torch::randn({kSide, kSide})).clamp(0, 1);
    const at::Tensor pixels = (image * 255).to(torch::kByte).contiguous();
    const fs::path place = folder / names[kind];
    fs::create_directories(place);
    std::ofstream file(place / (std::to_string(1000 + i) + ".pgm"), std::ios::binary);
    file << "P5\n" << kSide << " " << kSide << "\n255\n";
    file.write(static_cast<const char*>(pixels.const_data_ptr()), pixels.numel());
  }
}

int main(int count, char** words) try {
  const TemporaryFolder made;
  fs::path folder = made.path();
  if (const char* const given = std::getenv("IMAGES")) {
    folder = given;
  } else {
    torch::manual_seed(3);
    make_images(folder / "train", 900);
    make_images(folder / "test", 300);
  }
  const ImageFiles seen(folder / "train"), unseen(folder / "test");
  if (seen.classes() != unseen.classes())
    throw InputError("images", "{}: expected the same classes in train and test", folder.string());
  if (count > 1)
    return train_images(seen, unseen, words[1], 2).result.best_evaluation.at("accuracy") > 0.9 ? 0 : 1;
  const Trained one = train_images(seen, unseen, "single", 1);
  bool good = one.result.best_evaluation.at("accuracy") > 0.9 && one.result.stopped_early;
  for (const int workers : {0, 3})
    good = train_images(seen, unseen, "single", workers).weights == one.weights && good;
  for (const char* layout : {"dp --devices 2", "pipeline --devices 2"})
    good = train_images(seen, unseen, layout, 2).result.best_evaluation.at("accuracy") > 0.9 && good;
  return good ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 2;
}
