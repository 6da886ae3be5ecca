#pragma once
// Students of a teacher: their sizes, and the teacher's layers that they may begin with.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/model/pretrained.h"

namespace funicular::model {

/// tinybert4 (4 layers of 312, inner size 1200, 12 heads), tinybert6 (6 of 768, 3072, 12): Jiao et al. 2020, section
/// 4.2; minilm6 (6 of 384, 1536, 12): Wang et al. 2020.
const std::vector<std::string>& student_names();

/// The teacher's configuration with these sizes; or, of a name such as 3-layers, with so many layers. Throws
/// InputError for another name, suggesting the nearest.
format::ModelConfig student_config(const std::string& name, const format::ModelConfig& teacher);

/// The teacher's layers, from 1, that a student of so many layers begins with: "even" (i · N / M for i = 1 … M,
/// rounded down), or numbers with commas between them, one a layer of the student. Throws InputError.
std::vector<int64_t> parse_init_layers(const std::string& text, int64_t student_layers,
                                       int64_t teacher_layers);

/// Throws InputError for a student whose layers cannot be a teacher's: of other sizes.
void check_init_sizes(const format::ModelConfig& config, const format::ModelConfig& theirs);

/// Gives each layer of a student the attention of the teacher's layer that it begins with.
void take_layer_attention(format::ModelConfig& student, const format::ModelConfig& teacher,
                          const std::vector<int64_t>& layers);

/// Compares each layer of the student with the teacher's layer that it begins with. Throws InputError if their
/// attention differs, or if the teacher's layer lacks a norm. Warns if the teacher's layer has one norm more.
void check_init_layers(const format::ModelConfig& student, const format::ModelConfig& teacher,
                       const std::vector<int64_t>& layers);

/// Checks sizes and attention. A student without a config.json of its own first takes the attention of the layers.
void prepare_init_layers(format::ModelConfig& student, const format::ModelConfig& teacher,
                         const std::vector<int64_t>& layers, bool own_config);

/// Copies the teacher's embeddings, head (where both have it) and those layers into a student. Throws InputError
/// where the student's sizes are others than the teacher's.
void load_layers(Model& student, const format::ModelConfig& config, const Pretrained& teacher,
                 const std::vector<int64_t>& layers);

}  // namespace funicular::model
