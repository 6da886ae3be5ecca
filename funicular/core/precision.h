#pragma once
// The number formats that a run may compute in, and how a model is brought to one.

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "funicular/core/model.h"

namespace funicular {

/// tf32: fp32 with Tf32Products. On CPUs and on GPUs before Ampere it is plain fp32; only the program refuses it there.
enum class Precision { fp32, fp64, bf16, fp16, tf32 };
/// "fp32", …; throws InputError that lists the names.
Precision parse_precision(const std::string& name);
std::string precision_name(Precision precision);

/// The type of the weights that the optimiser updates, and of what a source's floating-point data become.
at::ScalarType master_type(Precision precision);
/// The 16-bit type of mixed precision that products are computed in; none: the masters' type.
std::optional<at::ScalarType> compute_type(Precision precision);

/// While it lives, LibTorch multiplies float32 on GPUs by tensor cores: operands get 10 bits of mantissa, sums are in
/// float32. Our attention, CPUs and GPUs before Ampere do not change. At the end the earlier setting returns.
class Tf32Products {
 public:
  Tf32Products();
  ~Tf32Products();
  Tf32Products(const Tf32Products&) = delete;
  Tf32Products& operator=(const Tf32Products&) = delete;

 private:
  bool before_;
};

/// The types of mixed precision (Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.1). Matrices
/// (ParameterKind::matrix) are multiplied in `compute`, and their gradients are collected in `gradient`. Vectors
/// (biases, normalisation) stay in the master's type.
struct MatrixTypes {
  std::optional<at::ScalarType> compute{};   ///< kBFloat16 or kHalf; none: the master's type
  std::optional<at::ScalarType> gradient{};  ///< none: the master's type, right for sums over micro-batches
};

/// Makes the compute tensors of all frozen matrices copies of that type.
void convert_frozen_matrices(Model& model, at::ScalarType type);

/// Gives every parameter (but Parameter::constant ones) and floating-point buffer the type, and ends mixed precision
/// of an earlier run: `compute` becomes `master` again. The tensor objects stay: modules hold them.
void convert(Model& model, at::ScalarType type);

/// Makes a model of fp32 weights one for prediction alone, without gradients. With a 16-bit precision it has its
/// matrices in that type only, at half their memory. Throws InputError for a 16-bit precision if the model does not
/// compute in its matrices' type (Model::low_precision). Run such a model under Autocast. With tf32 each segment has
/// Tf32Products while it runs, so one thread at a time may use such a model.
void make_inference(Model& model, Precision precision);

}  // namespace funicular
