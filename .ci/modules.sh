# shellcheck shell=bash
# readme, run, tags and outside/check source this script in the folder of the root module. It has
# the modules of this repository and their version, and functions for a module proxy that
# serves them.

root=github.com/aa014e13/tokenbucket

# The version that the changelog names first.
version=v$(sed -n 's/^## \[\([0-9][^]]*\)\].*/\1/p' CHANGELOG.md | head -n 1)

# Folders of the nested modules.
modules() { git ls-files '*/go.mod' | xargs -r -n 1 dirname; }

import_path() {
  if [ "$1" = . ]; then echo "$root"; else echo "$root/$1"; fi
}

# Modules nested in a folder, as pathspecs that leave them out of its archive.
without_nested_modules() {
  local folder=$1 nested
  for nested in $(modules); do
    case "$nested" in
      "$folder"/*) echo ":(exclude)${nested#"$folder"/}" ;;
      *) [ "$folder" != . ] || echo ":(exclude)$nested" ;;
    esac
  done
}

# serve_module FOLDER PROXY puts the module, as it is committed, into a proxy made of files.
serve_module() {
  local folder=$1 module served excluded
  module=$(import_path "$folder")
  served="$2/$module/@v"
  mkdir -p "$served"
  mapfile -t excluded < <(without_nested_modules "$folder")
  printf '{"Version":"%s"}' "$version" >"$served/$version.info"
  echo "$version" >"$served/list"
  (
    cd "$folder" || exit
    git show HEAD:./go.mod >"$served/$version.mod"
    git archive --format zip --prefix "$module@$version/" -o "$served/$version.zip" HEAD -- . "${excluded[@]}"
  )
}

# serve_modules PROXY serves the root and every nested module.
serve_modules() {
  local folder
  for folder in . $(modules); do
    serve_module "$folder" "$1"
  done
}
