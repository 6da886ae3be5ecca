#include "funicular/objective/vector_losses.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::objective {

namespace {

constexpr int64_t kRowsAtOnce = 128;  // of the table of cosines
constexpr double kNone = -std::numeric_limits<double>::infinity();

const at::Tensor* find_rows(const TensorMap& rows, const char* name) {
  const auto found = rows.find(name);
  return found == rows.end() ? nullptr : &found->second;
}

at::Tensor unit_rows(const at::Tensor& vectors) {
  return vectors / vectors.norm(2, {-1}, /*keepdim=*/true).clamp_min(1e-12);
}

/// Reads the two halves of a vector as real and imaginary parts of complex numbers. Returns the sum of all parts of x
/// / y, both of length 1.
at::Tensor angle_similarity(const at::Tensor& x, const at::Tensor& y) {
  const auto xs = x.chunk(2, 1), ys = y.chunk(2, 1);
  const at::Tensor &a = xs[0], &b = xs[1], &c = ys[0], &d = ys[1];
  const at::Tensor length_x = (a * a + b * b).sum(1, true).sqrt(),
                   length_y = (c * c + d * d).sum(1, true).sqrt();
  const at::Tensor real = a * c + b * d, imaginary = b * c - a * d;
  return ((real + imaginary) / (length_x * length_y)).sum(1).abs();
}

// ---- losses of a batch that read one number per row

/// log(1 + Σ over label_i > label_j of exp(scale (s_j - s_i))), without a table of all pairs.
at::Tensor ordered_scores_loss(const at::Tensor& similarities, const at::Tensor& row_labels, double scale) {
  const auto [labels, order] = row_labels.to(similarities.scalar_type()).sort(/*stable=*/true, 0, false);
  const at::Tensor scores = (similarities * scale).index_select(0, order);
  const at::Tensor higher = at::searchsorted(labels.contiguous(), labels.contiguous(), false, /*right=*/true);
  const at::Tensor suffix =
      at::cat({at::logcumsumexp(-scores.flip(0), 0).flip(0), at::full({1}, kNone, scores.options())});
  return at::logsumexp(at::cat({at::zeros({1}, scores.options()), scores + suffix.index_select(0, higher)}),
                       {0});
}

/// Sums the squared distances of positives that are farther than the nearest negative. Adds the squared shortfall
/// from the margin of negatives that are nearer than the farthest positive.
at::Tensor hard_pairs_loss(const at::Tensor& distances, const at::Tensor& labels, double margin) {
  const at::Tensor negatives = distances.masked_select(labels.eq(0)),
                   positives = distances.masked_select(labels.eq(1));
  const at::Tensor farthest = positives.numel() > 0 ? positives.max() : negatives.mean();
  const at::Tensor nearest = negatives.numel() > 0 ? negatives.min() : positives.mean();
  const at::Tensor near = negatives.masked_select(negatives.lt(farthest)),
                   far = positives.masked_select(positives.gt(nearest));
  return far.square().sum() + (margin - near).relu().square().sum();
}

// ---- multiple negatives

/// Rows of the table of cosines, [rows, texts], and the meaning of its columns. `unit` [C, N, D]: the texts column by
/// column, so that the order of columns is the same for all splits of the batch.
class NegativesTable {
 public:
  NegativesTable(const VectorLossOptions& options, const at::Tensor& unit, const at::Tensor* present)
      : options_(options), unit_(unit), columns_(unit.size(0)), rows_(unit.size(1)) {
    if (present) absent_ = present->slice(1, 1).t().reshape({1, -1}).eq(0);
  }

  /// The losses of rows [begin, end).
  at::Tensor losses(int64_t begin, int64_t end) const {
    const at::Tensor queries = unit_.select(0, 0), documents = unit_.slice(0, 1).reshape({-1, unit_.size(2)});
    const at::Tensor own = queries.slice(0, begin, end), positives = unit_.select(0, 1).slice(0, begin, end);
    const at::Tensor same =
        at::arange(begin, end, at::TensorOptions(at::kLong).device(unit_.device())).unsqueeze(1);
    std::vector<at::Tensor> tables{logits_of_documents(at::mm(own, documents.t()), same)};
    const at::Tensor positive = tables[0].gather(1, same).squeeze(1);
    if (options_.comparison != Comparison::one_way)
      tables.push_back(at::mm(positives, queries.t()) * options_.scale);
    if (options_.comparison == Comparison::joint) {
      tables.push_back((at::mm(own, queries.t()) * options_.scale).scatter(1, same, kNone));
      tables.push_back(without_absent(at::mm(positives, documents.t()) * options_.scale)
                           .masked_fill(own_documents(same), kNone));
    }
    if (options_.comparison == Comparison::joint) return at::logsumexp(at::cat(tables, 1), {1}) - positive;
    at::Tensor partition = at::logsumexp(tables[0], {1});
    if (tables.size() > 1) partition = (partition + at::logsumexp(tables[1], {1})) / 2;
    return partition - positive;
  }

 private:
  at::Tensor without_absent(const at::Tensor& table) const {
    return absent_.defined() ? table.masked_fill(absent_, kNone) : table;
  }
  /// The columns of a row's own positive and negatives, [rows, texts].
  at::Tensor own_documents(const at::Tensor& same) const {
    return at::arange(rows_, same.options()).repeat({columns_ - 1}).unsqueeze(0).eq(same);
  }
  at::Tensor logits_of_documents(const at::Tensor& cosines, const at::Tensor& same) const {
    at::Tensor logits = cosines * options_.scale;
    if (options_.hardness > 0 || options_.batch_hardness > 0) {
      const at::Tensor own = own_documents(same);
      const at::Tensor strength = at::where(own, at::scalar_tensor(options_.hardness, cosines.options()),
                                            at::scalar_tensor(options_.batch_hardness, cosines.options()));
      logits = logits + (strength * cosines.detach()).scatter(1, same, 0);
    }
    return without_absent(logits);
  }

  const VectorLossOptions& options_;
  const at::Tensor unit_;
  const int64_t columns_, rows_;
  at::Tensor absent_;  ///< [1, texts]; undefined: none
};

// ---- losses of rows

/// The mean over the negatives that a row has; `of_negatives` [N, C - 2].
at::Tensor mean_of_negatives(const at::Tensor& of_negatives, const at::Tensor* present) {
  if (!present) return of_negatives.mean(1);
  const at::Tensor there = present->slice(1, 2).to(of_negatives.scalar_type());
  return (of_negatives * there).sum(1) / there.sum(1).clamp_min(1);
}

at::Tensor triplet_losses(const at::Tensor& vectors, const at::Tensor* present, double margin) {
  const at::Tensor distances = (vectors.slice(1, 0, 1) - vectors.slice(1, 1)).norm(2, {-1});
  return mean_of_negatives((distances.slice(1, 0, 1) - distances.slice(1, 1) + margin).relu(), present);
}

at::Tensor margin_losses(const at::Tensor& vectors, const at::Tensor* present, const at::Tensor& labels) {
  const at::Tensor products = (vectors.slice(1, 0, 1) * vectors.slice(1, 1)).sum(-1);
  const at::Tensor margins = products.slice(1, 0, 1) - products.slice(1, 1);
  const at::Tensor wanted = labels.to(margins.scalar_type()).reshape({margins.size(0), -1});
  return mean_of_negatives((margins - wanted).square(), present);
}

at::Tensor contrastive_losses(const at::Tensor& distances, const at::Tensor& labels, double margin) {
  const at::Tensor same = labels.to(distances.scalar_type());
  return 0.5 * (same * distances.square() + (1 - same) * (margin - distances).relu().square());
}

/// The distances to the first D numbers of each teacher's vector. `vectors` [N, 1, D]: for a Matryoshka size already
/// cut and normalised, as the teacher's vectors then are.
at::Tensor teacher_distances(VectorLoss loss, const at::Tensor& vectors, const at::Tensor& teacher) {
  if (loss == VectorLoss::cosine_distance) return 1 - teacher_cosines(vectors, teacher);
  return (vectors.select(1, 0) - teacher.to(vectors.scalar_type())).square().sum(1);
}

const at::Tensor& labels_of(const TensorMap& rows) {
  const at::Tensor* const labels = find_rows(rows, kRowLabels);
  if (!labels) throw InputError("loss", "the loss reads a label per row, and the rows have none");
  return *labels;
}

}  // namespace

// ---- options

const std::vector<std::string>& vector_loss_names() {
  static const std::vector<std::string> names{
      "multiple-negatives", "triplet",          "margin-mse",     "cosent", "angle", "cosine", "contrastive",
      "online-contrastive", "squared-distance", "cosine-distance"};
  return names;
}

const std::vector<std::string>& comparison_names() {
  static const std::vector<std::string> names{"one-way", "symmetric", "joint"};
  return names;
}

bool VectorLossOptions::compares_rows() const {
  return loss == VectorLoss::multiple_negatives || loss == VectorLoss::cosent || loss == VectorLoss::angle ||
         loss == VectorLoss::online_contrastive;
}

bool VectorLossOptions::reads_labels() const {
  return loss != VectorLoss::multiple_negatives && loss != VectorLoss::triplet && !reads_teacher();
}

bool VectorLossOptions::reads_teacher() const {
  return loss == VectorLoss::squared_distance || loss == VectorLoss::cosine_distance;
}

bool VectorLossOptions::reads_classes() const {
  return loss == VectorLoss::contrastive || loss == VectorLoss::online_contrastive;
}

void VectorLossOptions::check() const {
  const auto refuse_unless = [&](bool read, bool given, const char* option, const char* losses) {
    if (given && !read)
      throw InputError("usage", "{} works only with --loss {}, found --loss {}", option, losses, name());
  };
  const bool negatives = loss == VectorLoss::multiple_negatives;
  refuse_unless(negatives, comparison != Comparison::one_way, "--compare", "multiple-negatives");
  refuse_unless(negatives, hardness > 0, "--hardness", "multiple-negatives");
  refuse_unless(negatives, batch_hardness > 0, "--batch-hardness", "multiple-negatives");
  refuse_unless(loss == VectorLoss::triplet || reads_classes(), margin.has_value(), "--loss-margin",
                "triplet, contrastive or online-contrastive");
  if (!(scale > 0) || !std::isfinite(scale))
    throw InputError("usage", "--scale expects a number above 0, found {}", scale);
  for (size_t i = 0; i < matryoshka.size(); ++i) {
    if (matryoshka[i] < 1)
      throw InputError("usage", "--matryoshka-dims expects sizes of at least 1, found {}", matryoshka[i]);
    if (std::count(matryoshka.begin(), matryoshka.end(), matryoshka[i]) > 1)
      throw InputError("usage", "--matryoshka-dims names {} twice; name each size once", matryoshka[i]);
    if (loss == VectorLoss::angle && matryoshka[i] % 2 != 0)
      throw InputError("usage", "--loss angle pairs both halves of a vector; --matryoshka-dims {} is odd",
                       matryoshka[i]);
  }
}

void VectorLossOptions::check_width(int64_t width) const {
  if (loss == VectorLoss::angle && width % 2 != 0)
    throw InputError("usage", "--loss angle pairs both halves of a vector, and vectors here have {} numbers",
                     width);
  for (const int64_t size : matryoshka)
    if (size > width)
      throw InputError("usage",
                       "--matryoshka-dims {}: the model's vectors have {} numbers; expected at most as many",
                       size, width);
}

void VectorLossOptions::add_identity(std::map<std::string, std::string>& identity) const {
  identity["loss"] = fmt::format("{}, {}, scale {}, hardness {} {}, margin {}, sizes [{}]", name(),
                                 comparison_names().at(static_cast<size_t>(comparison)), scale, hardness,
                                 batch_hardness, margin.value_or(-1), fmt::join(matryoshka, " "));
}

// ---- the loss

VectorLossOfRows::VectorLossOfRows(VectorLossOptions options) : options_(std::move(options)) {
  options_.check();
}

namespace {

/// The loss at one size of the vectors. Its gradients are added to `vectors`, a leaf.
class OneSize {
 public:
  OneSize(const VectorLossOptions& options, const TensorMap& rows, at::Tensor vectors, bool differentiate)
      : options_(options), rows_(rows), vectors_(std::move(vectors)), differentiate_(differentiate) {}

  /// The losses of rows [begin, end), and zeros for all other rows.
  at::Tensor losses(int64_t begin, int64_t end) const {
    return options_.loss == VectorLoss::multiple_negatives ? of_negatives(begin, end) : of_scores(begin, end);
  }

 private:
  /// Computes one block of rows at a time. The shared normalised vectors are differentiated once, after all blocks.
  at::Tensor of_negatives(int64_t begin, int64_t end) const {
    const at::Tensor unit = unit_rows(vectors_).transpose(0, 1).contiguous();
    const at::Tensor leaf = unit.detach().requires_grad_(differentiate_);
    const NegativesTable table(options_, leaf, find_rows(rows_, kPresentTexts));
    at::Tensor losses = at::zeros({vectors_.size(0)}, vectors_.options().requires_grad(false));
    for (int64_t first = begin; first < end; first += kRowsAtOnce) {
      const int64_t last = std::min(end, first + kRowsAtOnce);
      const at::Tensor block = table.losses(first, last);
      if (differentiate_) block.sum().backward();
      losses.slice(0, first, last).copy_(block.detach());
    }
    if (differentiate_ && leaf.grad().defined()) unit.backward(leaf.grad());
    return losses;
  }

  /// The loss is one number for the whole batch. Every row gets this number as its loss, so that the mean over rows
  /// is the batch's loss.
  at::Tensor of_scores(int64_t begin, int64_t end) const {
    const int64_t all = vectors_.size(0);
    const bool angle = options_.loss == VectorLoss::angle;
    const at::Tensor similarities =
        angle ? angle_similarity(vectors_.select(1, 0), vectors_.select(1, 1)) : pair_cosines(vectors_);
    const at::Tensor leaf = similarities.detach().requires_grad_(differentiate_);
    const at::Tensor loss = options_.loss == VectorLoss::online_contrastive
                                ? hard_pairs_loss(1 - leaf, labels_of(rows_), options_.margin.value_or(0.5))
                                : ordered_scores_loss(leaf, labels_of(rows_), options_.scale);
    at::Tensor losses = at::zeros({all}, leaf.options().requires_grad(false));
    losses.slice(0, begin, end).copy_(loss.detach());
    if (!differentiate_) return losses;
    (loss * static_cast<double>(all)).backward();
    at::Tensor own = at::zeros_like(losses);
    if (leaf.grad().defined()) own.slice(0, begin, end).copy_(leaf.grad().slice(0, begin, end));
    similarities.backward(own);
    return losses;
  }

  const VectorLossOptions& options_;
  const TensorMap& rows_;
  const at::Tensor vectors_;
  const bool differentiate_;
};

at::Tensor cut_to(const at::Tensor& vectors, int64_t size) {
  return unit_rows(vectors.slice(-1, 0, size));
}

}  // namespace

BatchLoss::Result VectorLossOfRows::compute(const TensorMap& rows, int64_t begin, int64_t end,
                                            bool differentiate) const {
  const at::AutoGradMode graph(differentiate);
  const at::Tensor vectors = rows.at(kRowVectors).detach().clone().requires_grad_(differentiate);
  if (!options_.compares_rows()) {
    const at::Tensor losses = of_rows([&] {
      TensorMap leaf = rows;
      leaf[kRowVectors] = vectors;
      return leaf;
    }());
    const at::Tensor own = losses.slice(0, begin, end);
    if (differentiate) own.sum().backward();
    Result result{at::zeros_like(losses.detach()), vectors.grad()};
    result.values.slice(0, begin, end).copy_(own.detach());
    return result;
  }
  Result result;
  const std::vector<int64_t> whole{0};
  for (const int64_t size : options_.matryoshka.empty() ? whole : options_.matryoshka) {
    const OneSize one(options_, rows, size == 0 ? vectors : cut_to(vectors, size), differentiate);
    const at::Tensor losses = one.losses(begin, end);
    result.values = result.values.defined() ? result.values + losses : losses;
  }
  result.values = result.values.detach();
  if (differentiate)
    result.gradients = vectors.grad().defined() ? vectors.grad() : at::zeros_like(vectors.detach());
  return result;
}

at::Tensor VectorLossOfRows::of_rows(const TensorMap& rows) const {
  const at::Tensor& vectors = rows.at(kRowVectors);
  const at::Tensor* const present = find_rows(rows, kPresentTexts);
  const auto of_size = [&](const at::Tensor& cut) -> at::Tensor {
    switch (options_.loss) {
      case VectorLoss::triplet:
        return triplet_losses(cut, present, options_.margin.value_or(5));
      case VectorLoss::margin_mse:
        return margin_losses(cut, present, labels_of(rows));
      case VectorLoss::cosine:
        return (pair_cosines(cut) - labels_of(rows).to(cut.scalar_type())).square();
      case VectorLoss::squared_distance:
      case VectorLoss::cosine_distance: {
        const at::Tensor& teacher = rows.at(kTeacherVectors);
        return teacher_distances(options_.loss, cut,
                                 options_.matryoshka.empty() ? teacher : cut_to(teacher, cut.size(-1)));
      }
      case VectorLoss::contrastive:
        return contrastive_losses(1 - pair_cosines(cut), labels_of(rows), options_.margin.value_or(0.5));
      default:
        throw InputError("loss", "{} compares rows with each other; expected a loss of single rows",
                         options_.name());
    }
  };
  if (options_.matryoshka.empty()) return of_size(vectors);
  at::Tensor sum;
  for (const int64_t size : options_.matryoshka) {
    const at::Tensor losses = of_size(cut_to(vectors, size));
    sum = sum.defined() ? sum + losses : losses;
  }
  return sum;
}

at::Tensor pair_cosines(const at::Tensor& vectors) {
  return (unit_rows(vectors.select(1, 0)) * unit_rows(vectors.select(1, 1))).sum(1);
}

at::Tensor teacher_cosines(const at::Tensor& vectors, const at::Tensor& teacher) {
  return (unit_rows(vectors.select(1, 0)) * unit_rows(teacher.to(vectors.scalar_type()))).sum(1);
}

at::Tensor ranks_of_positives(const at::Tensor& vectors, const at::Tensor& present) {
  const at::Tensor unit = unit_rows(vectors).transpose(0, 1).contiguous();
  const int64_t rows = unit.size(1);
  at::Tensor cosines = at::mm(unit.select(0, 0), unit.slice(0, 1).reshape({-1, unit.size(2)}).t());
  if (present.defined()) cosines.masked_fill_(present.slice(1, 1).t().reshape({1, -1}).eq(0), kNone);
  return cosines.ge(cosines.slice(1, 0, rows).diagonal().unsqueeze(1)).sum(1);
}

}  // namespace funicular::objective
