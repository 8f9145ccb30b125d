# Lines of: part subject pass ratio strategy predicted measured p10 p90 predicted-compute compute (milliseconds).
# Prints a line for each part, subject and pass, what is off by more than 8 % or chosen badly, and what is made of all
# of it; with lines=1 every prediction besides. bench/predict.sh says what is wanted.
function magnitude(x) { return x < 0 ? -x : x }

function sort(values, count,    i, j, v)
{
    for (i = 2; i <= count; i++) {
        v = values[i]
        for (j = i - 1; j >= 1 && values[j] > v; j--)
            values[j + 1] = values[j]
        values[j + 1] = v
    }
}

# As metrics.md has percentiles: linear between neighbours.
function percentile(values, count, part,    at, low)
{
    at = 1 + part * (count - 1)
    low = int(at)
    if (low >= count)
        return values[count]
    return values[low] + (at - low) * (values[low + 1] - values[low])
}

# none, unless another one is predicted to be faster by more than 1 %.
function chosen(g,    i, best)
{
    for (i = 1; i <= members[g]; i++)
        if (best == "" || predicted[g, i] < predicted[g, best])
            best = i
    return predicted[g, best] < 0.99 * predicted[g, none[g]] ? best : none[g]
}

function fastest(g,    i, best)
{
    for (i = 1; i <= members[g]; i++)
        if (best == "" || measured[g, i] < measured[g, best])
            best = i
    return best
}

function line(text, error)
{
    return sprintf("%-42s predicted %9.3f  measured %9.3f (%.3f-%.3f)  error %+6.1f %%\n", text, $6, $7, $8, $9, error)
}

# One row of the table: of the errors in `values` and the choices counted.
function row(name, values, count, choices, good, worst)
{
    sort(values, count)
    printf "%-34s %11d %8.2f %6.2f %7.1f %8d of %-4d %8.1f\n", name, count, percentile(values, count, 0.5),
        percentile(values, count, 0.95), values[count], good, choices, worst
}

{
    g = $1 " " $2 " " $3 " " $4
    t = $1 " " $2 " " $3
    if (!(g in members)) {
        order[++groups] = g
        table_of[g] = t
    }
    if (!(t in count_of))
        tables[++table_count] = t
    m = ++members[g]
    name[g, m] = $5
    predicted[g, m] = $6
    measured[g, m] = $7
    if ($5 == "none")
        none[g] = m
    error = 100 * ($6 / $7 - 1)
    errors[++count] = magnitude(error)
    of_table[t, ++count_of[t]] = magnitude(error)
    if (lines)
        printf "%s", line(g " " $5, error)
    else if (magnitude(error) > 8)
        off = off line(g " " $5, error)
}

END {
    if (!count) {
        print "nothing was measured"
        exit 1
    }
    for (i = 1; i <= groups; i++) {
        g = order[i]
        t = table_of[g]
        c = chosen(g)
        f = fastest(g)
        regret = 100 * (measured[g, c] / measured[g, f] - 1)
        choices_of[t]++
        good += regret <= 2
        good_of[t] += regret <= 2
        worst = regret > worst ? regret : worst
        worst_of[t] = regret > worst_of[t] ? regret : worst_of[t]
        if (regret > 2)
            bad = bad sprintf("%-42s chosen %-8s %9.3f ms, best %-8s %9.3f ms: regret %.1f %%\n", g, name[g, c],
                measured[g, c], name[g, f], measured[g, f], regret)
    }
    printf "%s%-34s %11s %8s %6s %7s %16s %8s\n", lines ? "\n" : "", "", "predictions", "median %", "95th %", "worst %",
        "well chosen", "regret %"
    for (i = 1; i <= table_count; i++) {
        t = tables[i]
        for (m = 1; m <= count_of[t]; m++)
            some[m] = of_table[t, m]
        row(t, some, count_of[t], choices_of[t], good_of[t], worst_of[t])
    }
    row("all", errors, count, groups, good, worst)
    if (off bad)
        printf "\n%s%s", off, bad
    median = percentile(errors, count, 0.5)
    high = percentile(errors, count, 0.95)
    printf "\nmedian error %.2f %% (wanted: 3), 95th percentile %.2f %% (8); the best or within 2 %% of it in %.1f %% (95), worst regret %.1f %% (5)\n",
        median, high, 100 * good / groups, worst
    exit median > 3 || high > 8 || good < 0.95 * groups || worst > 5
}
