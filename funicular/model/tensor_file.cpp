#include "funicular/model/tensor_file.h"

#include <torch/types.h>

#include <utility>
#include <vector>

#include "funicular/format/safetensors_writer.h"

namespace funicular::model {

void write_tensors(const std::map<std::string, at::Tensor>& tensors, const fs::path& file) {
  std::vector<format::TensorDeclaration> declarations;
  for (const auto& [name, value] : tensors)
    declarations.push_back({name, format::DType::F32, value.sizes().vec()});
  format::SafetensorsWriter writer(file, std::move(declarations));
  for (const format::TensorDeclaration& tensor : writer.order()) {
    const at::Tensor value = tensors.at(tensor.name).to(at::kCPU, at::kFloat).contiguous();
    writer.write(tensor.name,
                 {static_cast<const std::byte*>(value.data_ptr()), static_cast<size_t>(value.nbytes())});
  }
  writer.close();
}

}  // namespace funicular::model
