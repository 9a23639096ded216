// Reads a SQLite database from outside, without the server: prints the rows of
// a statement as JSON. Usage: node query.js DATABASE SQL
const sqlite3 = require("sqlite3");
const [path, sql] = process.argv.slice(2);
const db = new sqlite3.Database(path);
db.configure("busyTimeout", 5000);
db.all(sql, (err, rows) => {
  if (err) {
    console.error(String(err));
    process.exit(1);
  }
  console.log(JSON.stringify(rows));
});
