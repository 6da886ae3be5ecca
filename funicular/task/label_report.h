#pragma once
// Messages about the labels of a file's rows before training.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/token_store.h"

namespace funicular::task {

struct FileRows;

/// The most classes that are numbers: such classes are grades of a scale.
inline constexpr size_t kMostGrades = 20;

/// The first ten names, in quotes if their end would not be visible.
std::string show_classes(const std::vector<std::string>& classes);

/// The number of rows of each class, by its number; for tags, of words. A row with shares counts for the class with
/// the greatest share. With independent shares, it counts for each label whose share is above 0.5.
std::vector<int64_t> rows_of_classes(const data::TokenStore& store);
/// The sum of each class's shares; for rows with one class, rows_of_classes().
std::vector<double> shares_of_classes(const data::TokenStore& store);

/// Rows / (classes * rows of the class), as in scikit-learn; for tags, words; for shares, their sums. Weights of rows
/// do not count. Throws InputError for a class whose shares are all 0.
std::vector<double> balanced_weights(const data::TokenStore& store, const fs::path& file);
/// For several labels per row: the number of rows with a known value of each label. With shares, rows that have a
/// share of it, otherwise all rows.
std::vector<int64_t> known_rows_of_labels(const data::TokenStore& store);
/// Throws InputError for a label that no row has a share of, as it could not be learnt.
void require_known_labels(const FileRows& rows);
/// Logs the number of rows with a known value of each label, unless all rows have one.
void report_known_labels(const data::TokenStore& store);

/// Logs the classes with their numbers of rows, including the smallest classes. Warns of similar names, and of ids
/// that are no classes.
void report_classes(const data::TokenStore& store, const fs::path& file);

/// Warns if rows seem to use another separator than `separator`, or if the labels are lists written as text. The
/// store holds sets of labels.
void report_separator(const data::TokenStore& store, const std::string& separator, const fs::path& file);

/// Throws InputError if the rows have fewer than `least` classes.
void require_classes(const FileRows& rows, size_t least);

/// Throws InputError if the classes are many distinct numbers with a fraction, which need a regression.
void refuse_measurements(const FileRows& rows);
/// Warns if the classes are a few distinct numbers with a fraction.
void warn_of_measurements(const FileRows& rows);

}  // namespace funicular::task
