#!/usr/bin/env bash
# The report in headless Chromium, on a laptop and on a phone, light and dark:
#   test_report.sh MAKE_PAGE
# FO_BROWSER_SHOTS=FOLDER leaves pictures there, to be looked at. Skipped (77) where there is no browser.
set -euo pipefail

make_page=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

browser=
for name in chromium chromium-browser google-chrome; do
    browser=$(command -v "$name" || true)
    [ -z "$browser" ] || break
done
if [ -z "$browser" ]; then
    echo "skipped: there is no Chromium; 'bash tools/setup.sh browser' installs it"
    exit 77
fi

# browse THEME WIDTH HEIGHT FLAG... URL
browse()
{
    local scheme=1 size=$2,$3
    [ "$1" != dark ] || scheme=0
    shift 3
    HOME=$work timeout 100 "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run \
        --disable-dev-shm-usage --user-data-dir="$work/profile" --virtual-time-budget=8000 \
        --blink-settings=preferredColorScheme=$scheme --window-size="$size" "$@" 2>"$work/log"
}

echo '<p>it runs</p>' >"$work/empty.html"
if ! browse light 800 600 --dump-dom "file://$work/empty.html" | grep -q 'it runs'; then
    echo "skipped: $browser is installed, but does not run here: $(tail -n 1 "$work/log")"
    exit 77
fi

# The pages, and copies of them that check themselves: errors are noted from before the first script on.
"$make_page" "$work/page.html"
"$make_page" --simulated "$work/page-simulated.html"
early="<script>window.failures = []; addEventListener('error', e => failures.push('error: ' + e.message));
addEventListener('securitypolicyviolation', e => failures.push('refused: ' + e.blockedURI));</script>"
checked() # PAGE
{
    sed '/<meta charset/q' "$1"
    echo "$early"
    sed '1,/<meta charset/d; /^<\/body>/,$d' "$1"
    echo '<script>'
    cat "$here/check.js"
    echo '</script></body></html>'
}
checked "$work/page.html" >"$work/checked.html"
checked "$work/page-simulated.html" >"$work/checked-simulated.html"

# Windows have a least width; a frame inside has not.
frame() # FILE WIDTH HEIGHT QUERY
{
    cat <<HTML
<!DOCTYPE html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<body style="margin:0"><pre id="result"></pre>
<script>addEventListener('message', e => {
  result.textContent = e.data.length ? e.data.map(line => 'FAIL' + 'ED: ' + line).join('\n') : 'EVERYTHING' + ' HOLDS';
});</script>
<iframe src="$1?$4" width="$2" height="$3" style="border:0"></iframe>
HTML
}

failures=0
for terms in "1366 768 light" "1366 768 dark" "390 844 light" "390 844 dark" "1366 768 light -simulated" \
    "390 844 dark -simulated"; do
    read -r width height theme which <<<"$terms"
    query="theme=$theme&width=$width${which:+&simulated}"
    frame "checked$which.html" "$width" "$height" "$query" >"$work/frame.html"
    # frames of files are strangers to each other, but for messages
    found=$(browse "$theme" 1400 900 --dump-dom "file://$work/frame.html" |
        grep -oE '(FAILED: .*|EVERYTHING HOLDS)' || true)
    echo "$width x $height, $theme$which: ${found:-FAILED: no answer; $(tail -n 1 "$work/log")}"
    [[ "$found" == "EVERYTHING HOLDS"* ]] || failures=$((failures + 1))
    if [ -n "${FO_BROWSER_SHOTS:-}" ]; then
        mkdir -p "$FO_BROWSER_SHOTS"
        frame "page$which.html" "$width" 5200 "" >"$work/frame.html"
        browse "$theme" $((width < 500 ? 500 : width)) 5200 \
            --screenshot="$FO_BROWSER_SHOTS/$width-$theme$which.png" "file://$work/frame.html"
    fi
done
exit $((failures > 0))
