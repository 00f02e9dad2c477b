# Embeds text files into a C++ function that returns them by the name an #include uses.
#
#   truefuse_embed(<target> <namespace> <function> <file>=<name> ...)
#
# adds a generated source to <target> that defines
#   const truefuse::jit::Files& <namespace>::<function>();
# The source is regenerated when a file changes. Run as a script (cmake -P) it writes the source.

if(CMAKE_SCRIPT_MODE_FILE)
  set(text "// Generated from the files named below.\n#include <truefuse/jit/source.h>\n\n")
  string(APPEND text "namespace ${NAMESPACE} {\n\nconst truefuse::jit::Files& ${FUNCTION}() {\n")
  string(APPEND text "  static const truefuse::jit::Files files{\n")
  foreach(pair IN LISTS PAIRS)
    string(REGEX MATCH "^(.*)=([^=]*)$" _ "${pair}")
    set(path "${CMAKE_MATCH_1}")
    set(name "${CMAKE_MATCH_2}")
    # As bytes in hexadecimal: CMake strings would trip over brackets and semicolons in C++ text.
    file(READ "${path}" hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" escaped "${hex}")
    string(REGEX REPLACE "(................................................................)" "\\1\"\n     \""
           escaped "${escaped}")
    string(LENGTH "${hex}" digits)
    math(EXPR size "${digits} / 2")
    string(APPEND text "    {\"${name}\", std::string(\n     \"${escaped}\", ${size})},\n")
  endforeach()
  string(APPEND text "  };\n  return files;\n}\n\n}  // namespace ${NAMESPACE}\n")
  file(WRITE "${OUTPUT}" "${text}")
  return()
endif()

set(TRUEFUSE_EMBED_SCRIPT "${CMAKE_CURRENT_LIST_FILE}")

function(truefuse_embed target namespace function)
  set(output "${CMAKE_CURRENT_BINARY_DIR}/embedded/${function}.cpp")
  set(inputs "")
  foreach(pair IN LISTS ARGN)
    string(REGEX REPLACE "=[^=]*$" "" path "${pair}")
    list(APPEND inputs "${path}")
  endforeach()
  add_custom_command(
    OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DNAMESPACE=${namespace}" "-DFUNCTION=${function}" "-DPAIRS=${ARGN}"
            "-DOUTPUT=${output}" -P "${TRUEFUSE_EMBED_SCRIPT}"
    DEPENDS ${inputs} "${TRUEFUSE_EMBED_SCRIPT}"
    VERBATIM)
  target_sources(${target} PRIVATE "${output}")
endfunction()
