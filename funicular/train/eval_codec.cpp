#include "funicular/train/eval_codec.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <vector>

#include "funicular/base/error.h"

namespace funicular::train {

namespace {

class Writer {
 public:
  template <class T>
  void number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void bytes(const void* data, size_t size) {
    number(static_cast<uint64_t>(size));
    text_.append(static_cast<const char*>(data), size);
  }
  void numbers(const std::map<std::string, double>& values) {
    number(static_cast<uint64_t>(values.size()));
    for (const auto& [name, value] : values) {
      bytes(name.data(), name.size());
      number(value);
    }
  }
  void tensor(const at::Tensor& value) {
    const at::Tensor plain = value.detach().cpu().contiguous();
    number(static_cast<int64_t>(plain.scalar_type()));
    bytes(plain.sizes().data(), plain.sizes().size() * sizeof(int64_t));
    bytes(plain.const_data_ptr(), plain.nbytes());
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(const std::string& text) : at_(text.data()), end_(text.data() + text.size()) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string bytes() {
    const auto size = static_cast<size_t>(number<uint64_t>());
    return {take(size), size};
  }
  std::map<std::string, double> numbers() {
    std::map<std::string, double> values;
    for (auto count = number<uint64_t>(); count > 0; --count) {
      const std::string name = bytes();
      values[name] = number<double>();
    }
    return values;
  }
  at::Tensor tensor() {
    const auto type = static_cast<at::ScalarType>(number<int64_t>());
    const std::string shape = bytes(), data = bytes();
    std::vector<int64_t> sizes(shape.size() / sizeof(int64_t));
    std::memcpy(sizes.data(), shape.data(), shape.size());
    const at::Tensor value = at::empty(sizes, type);
    if (value.nbytes() != data.size()) throw RunError("ranks", "a result of evaluation arrived damaged");
    std::memcpy(value.mutable_data_ptr(), data.data(), data.size());
    return value;
  }

 private:
  const char* take(size_t size) {
    if (static_cast<size_t>(end_ - at_) < size)
      throw RunError("ranks", "a result of evaluation arrived incomplete");
    at_ += size;
    return at_ - size;
  }
  const char *at_, *end_;
};

}  // namespace

std::string encode(const parallel::EvalResult& result) {
  Writer writer;
  writer.numbers(result.sums);
  writer.numbers(result.weights);
  writer.numbers(result.counts);
  writer.number(static_cast<uint64_t>(result.outputs.size()));
  for (const TensorMap& outputs : result.outputs) {
    writer.number(static_cast<uint64_t>(outputs.size()));
    for (const auto& [name, value] : outputs) {
      writer.bytes(name.data(), name.size());
      writer.tensor(value);
    }
  }
  return writer.take();
}

parallel::EvalResult decode(const std::string& bytes) {
  Reader reader(bytes);
  parallel::EvalResult result;
  result.sums = reader.numbers();
  result.weights = reader.numbers();
  result.counts = reader.numbers();
  result.outputs.resize(static_cast<size_t>(reader.number<uint64_t>()));
  for (TensorMap& outputs : result.outputs)
    for (auto count = reader.number<uint64_t>(); count > 0; --count) {
      const std::string name = reader.bytes();
      outputs[name] = reader.tensor();
    }
  return result;
}

std::string encode_metrics(const std::map<std::string, double>& metrics) {
  Writer writer;
  writer.numbers(metrics);
  return writer.take();
}

std::map<std::string, double> decode_metrics(const std::string& bytes) {
  return Reader(bytes).numbers();
}

}  // namespace funicular::train
