/* Works with an SQL data base in memory: trace-database ROWS. Built with SQLite's amalgamation. What it prints depends
 * on ROWS only. */
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>

static sqlite3 *data;

static int row(void *unused, int columns, char **values, char **names)
{
    for (int i = 0; i < columns; i++)
        printf("%s=%s%c", names[i], values[i] ? values[i] : "NULL", i + 1 < columns ? ' ' : '\n');
    return 0;
}

static void run(const char *text)
{
    char *error = NULL;
    if (sqlite3_exec(data, text, row, NULL, &error) != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", text, error);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    int rows = argc > 1 ? atoi(argv[1]) : 0;
    char text[256];

    if (sqlite3_open(":memory:", &data) != SQLITE_OK)
        return 1;
    run("create table item(id integer primary key, name text, price real, kind integer)");
    run("create table kind(id integer primary key, name text)");
    run("create index by_kind on item(kind, price)");
    for (int i = 0; i < 16; i++) {
        snprintf(text, sizeof text, "insert into kind values(%d, 'kind %d')", i, i);
        run(text);
    }
    run("begin");
    for (int i = 0; i < rows; i++) {
        snprintf(text, sizeof text, "insert into item values(%d, 'item %d', %d.5, %d)", i, i * 7919 % rows, i % 97, i % 16);
        run(text);
    }
    run("commit");
    for (int i = 0; i < 8; i++) {
        run("select kind.name, count(*), sum(price), max(item.name) from item join kind on kind.id = item.kind"
            " group by kind.id order by 3 desc limit 5");
        run("update item set price = price + 1 where name like '%3%'");
    }
    run("select count(distinct name), avg(length(name)) from item"
        " where exists (select 1 from kind where kind.id = item.kind and kind.name like '%1%')");
    sqlite3_close(data);
    return 0;
}
