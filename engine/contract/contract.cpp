#include <truefuse/contract/contract.h>
#include <truefuse/core/json.h>

namespace truefuse {
namespace {

void write_tensor(JsonWriter& json, const Contract& contract, const TensorSpec& tensor) {
  json.key("kind").string("tensor").key("dtypes").begin_array();
  for (const DType dtype : tensor.dtypes) json.string(short_name(dtype));
  json.end_array().key("torch_dtypes").begin_array();
  for (const DType dtype : tensor.dtypes) json.string(torch_name(dtype));
  json.end_array().key("like");
  tensor.like ? json.string(contract.arguments()[*tensor.like].name) : json.null();
  json.key("pack");
  tensor.pack ? json.string(contract.symbols()[*tensor.pack].name) : json.null();
  json.key("dims").begin_array();
  for (const DimSpec& dim : tensor.dims) {
    json.begin_object().key("text").string(contract.text_of(dim));
    json.key("factor").integer(dim.factor).key("symbols").begin_array();
    for (const std::size_t symbol : dim.symbols) json.string(contract.symbols()[symbol].name);
    json.end_array().end_object();
  }
  json.end_array().key("layout").string(layout_word(tensor.layout).word);
  json.key("mutated").boolean(tensor.mutated).key("alignment").integer(tensor.alignment);
}

}  // namespace

std::string Contract::text_of(const DimSpec& dim) const {
  std::string text;
  if (dim.factor != 1 || dim.symbols.empty()) text = std::to_string(dim.factor);
  for (const std::size_t symbol : dim.symbols) {
    if (!text.empty()) text += '*';
    text += symbols_[symbol].name;
  }
  return text;
}

std::string Contract::text_of_dims(const TensorSpec& tensor) const {
  std::string text;
  if (tensor.pack) text = symbols_[*tensor.pack].name + "..";
  for (const DimSpec& dim : tensor.dims) {
    if (!text.empty()) text += ", ";
    text += text_of(dim);
  }
  return '[' + text + ']';
}

std::string Contract::json() const {
  JsonWriter json;
  json.begin_object().key("text").string(text_).key("symbols").begin_array();
  for (const Symbol& symbol : symbols_) {
    json.begin_object().key("name").string(symbol.name);
    json.key("pack").boolean(symbol.is_pack).end_object();
  }
  json.end_array().key("arguments").begin_array();
  for (const ArgumentSpec& argument : arguments_) {
    json.begin_object().key("name").string(argument.name);
    json.key("optional").boolean(argument.optional);
    if (const TensorSpec* tensor = argument.tensor()) {
      write_tensor(json, *this, *tensor);
    } else {
      std::visit([&](const auto& scalar) { scalar.write_json(json); },
                 std::get<ScalarSpec>(argument.spec));
      if (argument.symbol) json.key("symbol").string(symbols_[*argument.symbol].name);
    }
    json.end_object();
  }
  json.end_array().key("outputs").begin_array();
  for (const OutputSpec& output : outputs_) {
    json.begin_object().key("name").string(output.name).key("if");
    output.wanted ? json.string(arguments_[*output.wanted].name) : json.null();
    write_tensor(json, *this, output.tensor);
    json.end_object();
  }
  json.end_array().end_object();
  return json.text();
}

}  // namespace truefuse
