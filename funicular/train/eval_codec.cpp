#include "funicular/train/eval_codec.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <vector>

#include "funicular/base/bytes.h"

namespace funicular::train {

namespace {

void put_numbers(ByteWriter& writer, const std::map<std::string, double>& values) {
  writer.put(values.size());
  for (const auto& [name, value] : values) {
    writer.put_text(name);
    writer.put(value);
  }
}

std::map<std::string, double> get_numbers(ByteReader& reader) {
  std::map<std::string, double> values;
  for (auto count = reader.get<size_t>(); count > 0; --count) {
    const std::string name(reader.get_text());
    values[name] = reader.get<double>();
  }
  return values;
}

void put_tensor(ByteWriter& writer, const at::Tensor& value) {
  const at::Tensor plain = value.detach().cpu().contiguous();
  writer.put(plain.scalar_type());
  writer.put(plain.dim());
  for (const int64_t size : plain.sizes()) writer.put(size);
  writer.put_text({static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()});
}

at::Tensor get_tensor(ByteReader& reader) {
  const auto type = reader.get<at::ScalarType>();
  std::vector<int64_t> sizes(static_cast<size_t>(reader.get<int64_t>()));
  for (int64_t& size : sizes) size = reader.get<int64_t>();
  const at::Tensor value = at::empty(sizes, type);
  const std::string_view data = reader.get_text();
  if (data.size() != value.nbytes())
    throw RunError("ranks",
                   "a tensor between ranks has {} bytes; expected {}; all ranks must run the same program",
                   data.size(), value.nbytes());
  if (!data.empty()) std::memcpy(value.mutable_data_ptr(), data.data(), data.size());
  return value;
}

}  // namespace

std::string encode(const parallel::EvalResult& result) {
  ByteWriter writer;
  put_numbers(writer, result.sums);
  put_numbers(writer, result.weights);
  put_numbers(writer, result.counts);
  writer.put(result.outputs.size());
  for (const TensorMap& outputs : result.outputs) {
    writer.put(outputs.size());
    for (const auto& [name, value] : outputs) {
      writer.put_text(name);
      put_tensor(writer, value);
    }
  }
  return writer.take();
}

parallel::EvalResult decode(std::string_view bytes) {
  ByteReader reader(bytes);
  parallel::EvalResult result;
  result.sums = get_numbers(reader);
  result.weights = get_numbers(reader);
  result.counts = get_numbers(reader);
  result.outputs.resize(reader.get<size_t>());
  for (TensorMap& outputs : result.outputs)
    for (auto count = reader.get<size_t>(); count > 0; --count) {
      const std::string name(reader.get_text());
      outputs[name] = get_tensor(reader);
    }
  return result;
}

std::string encode_metrics(const std::map<std::string, double>& metrics) {
  ByteWriter writer;
  put_numbers(writer, metrics);
  return writer.take();
}

std::map<std::string, double> decode_metrics(std::string_view bytes) {
  ByteReader reader(bytes);
  return get_numbers(reader);
}

}  // namespace funicular::train
