/* Writing the report. */
#include "trace/page.h"

#include "base/error.h"

fo_status fo_trace_page_write(const fo_page *page, const char *path)
{
    (void)page;
    return fo_base_error(FO_UNSUPPORTED, "%s: reports can't be written yet", path);
}
