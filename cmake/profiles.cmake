# Every profiles/NAME.json becomes part of the simulator, under its name: a new file is all a new machine takes.
file(GLOB profiles CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/profiles/*.json)
list(TRANSFORM profiles REPLACE "^.*/(.*)\\.json$" "\\1")
list(SORT profiles)
set(declarations "")
set(names "")
set(texts "")
foreach(name ${profiles})
  string(MAKE_C_IDENTIFIER fo_sim_shipped_${name} symbol)
  fo_embed(fo_sim ${symbol} ${PROJECT_SOURCE_DIR}/profiles/${name}.json)
  string(APPEND declarations "extern const char ${symbol}[];\n")
  string(APPEND names "    \"${name}\",\n")
  string(APPEND texts "    ${symbol},\n")
endforeach()
set(table ${PROJECT_BINARY_DIR}/embed/fo_sim_shipped.c)
file(CONFIGURE OUTPUT ${table} @ONLY CONTENT "#include \"sim/shipped.h\"

@declarations@
const char *const fo_sim_shipped_names[] = {
@names@    0};
const char *const fo_sim_shipped_texts[] = {
@texts@    0};
")
target_sources(fo_sim PRIVATE ${table})
