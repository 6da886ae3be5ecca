#include "funicular/optim/setting.h"

#include <fmt/format.h>

#include <cmath>

#include "funicular/base/number.h"

namespace funicular::optim {

bool Range::has(double value) const {
  return std::isfinite(value) && (above ? value > least : value >= least) &&
         (below ? value < most : value <= most);
}

std::string Range::text() const {
  if (std::isfinite(most))
    return fmt::format("in {}{}, {}{}", above ? "(" : "[", least, most, below ? ")" : "]");
  return fmt::format("{} {}", above ? "above" : "of at least", least);
}

Setting Setting::of_option(std::string name_of_option, std::string name_of_unit, std::string text) && {
  option = std::move(name_of_option);
  unit = std::move(name_of_unit);
  help = std::move(text);
  return std::move(*this);
}

Setting Setting::in(Range values) && {
  range = values;
  return std::move(*this);
}

Setting Setting::usually(SettingValue value) && {
  usual = std::move(value);
  return std::move(*this);
}

void Setting::check(const void* settings, std::string_view component, std::string_view owner) const {
  const SettingValue value = get(settings);
  const std::string called = option.empty() ? name : fmt::format("{} (--{})", name, option);
  if (const auto* number = std::get_if<double>(&value); number && !range.has(*number))
    throw InputError(component, "{}: expected {} {}, found {}", owner, called, range.text(), *number);
  if (const auto* bounds = std::get_if<Bounds>(&value);
      bounds && !(bounds->lowest >= 0 && bounds->lowest <= bounds->highest && bounds->highest > 0))
    throw InputError(component, "{}: expected {} with 0 <= lowest <= highest, found [{}, {}]", owner, called,
                     bounds->lowest, bounds->highest);
}

OrderedJson to_json(const SettingValue& value) {
  if (const auto* bounds = std::get_if<Bounds>(&value)) {
    OrderedJson highest;
    if (std::isfinite(bounds->highest)) highest = bounds->highest;
    return OrderedJson::array({bounds->lowest, highest});
  }
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* on = std::get_if<bool>(&value)) return *on;
  return std::get<std::string>(value);
}

std::string to_text(const SettingValue& value) {
  if (const auto* bounds = std::get_if<Bounds>(&value))
    return fmt::format("{:g},{:g}", bounds->lowest, bounds->highest);
  if (const auto* number = std::get_if<double>(&value)) {
    std::string text = fmt::format("{:g}", *number);
    if (const size_t exponent = text.find("e-0"); exponent != text.npos) text.erase(exponent + 2, 1);
    return text;
  }
  if (const auto* on = std::get_if<bool>(&value)) return *on ? "on" : "off";
  return std::get<std::string>(value);
}

Bounds read_bounds(std::string_view option, std::string_view text) {
  const size_t comma = text.find(',');
  if (comma != text.npos) {
    const std::string_view upper = text.substr(comma + 1);
    const auto lowest = read_number(text.substr(0, comma));
    const auto highest = upper == "inf" ? std::numeric_limits<double>::infinity() : read_number(upper);
    if (lowest && highest) return {*lowest, *highest};
  }
  throw InputError("usage", "--{} expects LOWEST,HIGHEST, such as 0.01,10 or 0,inf; found \"{}\"", option,
                   text);
}

}  // namespace funicular::optim
