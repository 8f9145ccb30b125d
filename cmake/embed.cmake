# Text files as C arrays, so that the library needs no file beside it.
#
# Included: fo_embed(target symbol file) adds the array `const char symbol[]`, ended by a zero byte, to a
# target. Run by the build (cmake -D SYMBOL=... -D FROM=... -D TO=... -P embed.cmake): writes one array.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ "${FROM}" bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  # declared first: the compiler wants to have seen what is exported
  file(WRITE "${TO}" "extern const char ${SYMBOL}[];\nconst char ${SYMBOL}[] = {\n${bytes}0};\n")
  return()
endif()

set(FO_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(fo_embed target symbol file)
  set(array ${PROJECT_BINARY_DIR}/embed/${symbol}.c)
  add_custom_command(OUTPUT ${array}
    COMMAND ${CMAKE_COMMAND} -D SYMBOL=${symbol} -D FROM=${file} -D TO=${array} -P ${FO_EMBED_SCRIPT}
    DEPENDS ${file} ${FO_EMBED_SCRIPT} VERBATIM)
  target_sources(${target} PRIVATE ${array})
endfunction()

fo_embed(fo_trace fo_trace_page_css ${PROJECT_SOURCE_DIR}/src/trace/page.css)
fo_embed(fo_trace fo_trace_page_js ${PROJECT_SOURCE_DIR}/src/trace/page.js)
