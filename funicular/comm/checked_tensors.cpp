#include "funicular/comm/checked_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "funicular/base/error.h"
#include "funicular/launch/environment.h"

namespace funicular::comm {

namespace {

std::optional<Element> find_element(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return Element::float32;
    case at::kDouble:
      return Element::float64;
    case at::kBFloat16:
      return Element::bfloat16;
    case at::kHalf:
      return Element::float16;
    case at::kLong:
      return Element::int64;
    default:
      return std::nullopt;
  }
}

const char* name_of(Element element) {
  static constexpr const char* kNames[] = {"float", "double", "bfloat16", "half", "int64"};
  return kNames[static_cast<int>(element)];
}

}  // namespace

const char* name_of(Reduction reduction) {
  static constexpr const char* kNames[] = {"sum", "average", "minimum", "maximum", "product"};
  return kNames[static_cast<int>(reduction)];
}

Element check_tensor(const char* operation, const at::Tensor& tensor) {
  if (!tensor.defined()) throw InputError(launch::kRanks, "{}: the tensor is undefined", operation);
  const std::optional<Element> element = find_element(tensor);
  if (!element || !tensor.is_contiguous())
    throw InputError(launch::kRanks,
                     "{}: expected a contiguous tensor of float, double, bfloat16, half or int64; found {}{}",
                     operation, tensor.dtype().name(),
                     tensor.is_contiguous() ? "" : ", not contiguous (call contiguous() first)");
  return *element;
}

void check_reduction(const char* operation, Element element, Reduction reduction) {
  if (reduction == Reduction::average && element == Element::int64)
    throw InputError(launch::kRanks, "{}: there is no average of whole numbers; take the sum and divide",
                     operation);
}

void check_rank(const char* operation, int rank, int size) {
  if (rank < 0 || rank >= size)
    throw InputError(launch::kRanks, "{}: expected a rank from 0 to {}, found {}", operation, size - 1, rank);
}

void check_pieces(const char* operation, const at::Tensor& tensor, const std::vector<Shard>& pieces,
                  int size) {
  int64_t covered = 0;
  bool whole = pieces.size() == static_cast<size_t>(size);
  for (const Shard& piece : pieces) {
    whole = whole && piece.begin == covered && piece.size >= 0;
    covered += piece.size;
  }
  if (!whole || covered != tensor.numel())
    throw InputError(launch::kRanks,
                     "{}: expected {} pieces that cover {} elements in order; found {} with {}", operation,
                     size, tensor.numel(), pieces.size(), covered);
}

std::string describe(const char* operation, const at::Tensor& tensor, const std::string& more) {
  return fmt::format("{} of {} {}{}", operation, tensor.numel(), name_of(element_of(tensor)), more);
}

/// The pieces may differ between ranks no more than the size may.
std::string describe_pieces(const std::vector<Shard>& pieces) {
  std::vector<int64_t> sizes;
  for (const Shard& piece : pieces) sizes.push_back(piece.size);
  return fmt::format(" in pieces of {}", fmt::join(sizes, ", "));
}

Element element_of(const at::Tensor& tensor) {
  return find_element(tensor).value();
}

std::byte* bytes(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

}  // namespace funicular::comm
